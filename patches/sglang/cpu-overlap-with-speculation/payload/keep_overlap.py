# sglforge: the relay between overlapped steps works on CPU (see gather_spec_extras) for the algorithms tried.
asked = resolving_view(server_args)
if (
    asked.device == "cpu"
    and not asked.disable_overlap_schedule
    and asked.speculative_algorithm in {"EAGLE", "EAGLE3", "STANDALONE", "NGRAM"}
    and not asked.enable_multi_layer_eagle
):
    logger.warning("sglforge: overlap scheduling stays on with speculative decoding on CPU.")
    return
