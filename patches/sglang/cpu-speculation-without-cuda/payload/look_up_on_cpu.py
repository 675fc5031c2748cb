# sglforge: there is no branch for the CPU below.
if req_to_token.device.type == "cpu":
    from sgl_kernel import assign_extend_cache_locs_cpu

    slots = torch.empty(batch_size * draft_token_num, dtype=torch.int64)
    width = req_to_token.shape[1]
    assign_extend_cache_locs_cpu(req_pool_indices, req_to_token, start_offset, end_offset, slots, width)
    return slots
