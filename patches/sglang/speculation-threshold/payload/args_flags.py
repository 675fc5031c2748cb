# sglforge: the threshold and how plain decode runs.
parser.add_argument(
    "--speculative-disable-batch-threshold",
    type=int,
    default=ServerArgs.speculative_disable_batch_threshold,
    help="sglforge: while a decode batch holds more requests than this, decode one token per request without "
    "drafts. 0 (the default) never does. Needs spec v2 with EAGLE, EAGLE3 or STANDALONE.",
)
parser.add_argument(
    "--speculative-disable-batch-mode",
    type=str,
    choices=["graph", "eager"],
    default=ServerArgs.speculative_disable_batch_mode,
    help="sglforge: run that decode from graphs of its own (the default; nothing without CUDA graphs) or eagerly.",
)
