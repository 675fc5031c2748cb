# sglforge: there is no branch for the CPU below, and without one nothing would be accepted.
if candidates.device.type == "cpu":
    from sgl_kernel import verify_tree_greedy_cpu

    tree = (retrive_index, retrive_next_token, retrive_next_sibling)
    verify_tree_greedy_cpu(predicts, accept_index, accept_token_num, candidates, *tree, target_predict)
    return predicts, accept_index, accept_token_num
