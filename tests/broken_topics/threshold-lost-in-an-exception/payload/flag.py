# sglforge: nothing is wrong with this one.
parser.add_argument(
    "--speculative-disable-batch-threshold",
    type=int,
    default=ServerArgs.speculative_disable_batch_threshold,
    help="Decode without drafts while a batch holds more requests than this.",
)
