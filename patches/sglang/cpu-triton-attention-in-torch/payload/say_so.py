# sglforge: see decode_attention_fwd and extend_attention_fwd.
if torch.device(self.device).type == "cpu" and not skip_prefill:
    import logging

    logging.getLogger(__name__).info("sglforge: the attention of the triton backend is computed in torch.")
