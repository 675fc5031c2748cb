# sglforge: Triton has no CPU driver; the rows are the same in plain torch.
if indices.device.type == "cpu":
    relayed = (topk_p_buf, topk_index_buf, output_tokens_buf, hidden_states_buf)
    return tuple(None if rows is None else rows[indices] for rows in relayed)
