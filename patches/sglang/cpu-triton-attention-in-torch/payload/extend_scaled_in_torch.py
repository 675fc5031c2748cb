# sglforge: the interpreter is too slow for this one; the metadata is used as it came.
if q_extend.device.type == "cpu" and xai_temperature_len <= 0:
    from sgl_kernel.indexed_attention import extend_attention_indexed_cpu

    extend_attention_indexed_cpu(
        q_extend,
        k_extend,
        v_extend,
        o_extend,
        k_buffer,
        v_buffer,
        qo_indptr,
        kv_indptr,
        kv_indices,
        custom_mask,
        is_causal,
        mask_indptr,
        sm_scale=sm_scale,
        logit_cap=logit_cap,
        skip_prefix_custom_mask=skip_prefix_custom_mask,
        sliding_window_size=sliding_window_size,
        sinks=sinks,
        window_kv_offsets=window_kv_offsets,
        k_scale=k_scale,
        v_scale=v_scale,
    )
    return
