# sglforge: a CPU tensor belongs to no stream, and no GPU is there to be waited for; asking for either does nothing.
if server_args.device == "cpu" and not server_args.disable_overlap_schedule:
    import logging

    import torch

    recorded = torch.Tensor.record_stream
    torch.Tensor.record_stream = lambda tensor, stream: None if tensor.is_cpu else recorded(tensor, stream)
    if not torch.cuda.is_available():
        torch.cuda.synchronize = lambda device=None: None
    logging.getLogger(__name__).info("sglforge: overlapped speculation runs on the CPU.")
