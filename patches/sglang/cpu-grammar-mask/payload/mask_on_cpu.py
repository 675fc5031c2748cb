# sglforge: xgrammar has a kernel for the CPU, SGLang has no branch for it.
if logits.device.type == "cpu":
    from xgrammar import apply_token_bitmask_inplace

    apply_token_bitmask_inplace(logits, vocab_mask)
    return
