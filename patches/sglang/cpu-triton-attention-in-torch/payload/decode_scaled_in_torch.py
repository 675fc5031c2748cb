# sglforge: the interpreter is too slow for this one; the metadata is used as it came.
if q.device.type == "cpu" and xai_temperature_len <= 0:
    from sgl_kernel.indexed_attention import decode_attention_indexed_cpu

    decode_attention_indexed_cpu(
        q,
        k_buffer,
        v_buffer,
        o,
        kv_indptr,
        kv_indices,
        sm_scale=sm_scale,
        logit_cap=logit_cap,
        sinks=sinks,
        k_scale=k_scale,
        v_scale=v_scale,
    )
    return
