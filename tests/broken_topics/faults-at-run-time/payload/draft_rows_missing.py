# sglforge: wrong on purpose. From a request's first step without drafts on, the draft's cache has no rows of its answer.
def sglforge_stale(right):
    from sglang.srt.environ import sglforge_fault

    stale = set()

    def generation(self, batch, *arguments, **named):
        result = right(self, batch, *arguments, **named)
        if not batch.forward_mode.is_extend() and sglforge_fault("stale-draft-rows"):
            if self.speculative_num_steps == 0:
                stale.update(req.rid for req in batch.reqs)
            pool = self.draft_worker.draft_runner.token_to_kv_pool
            places = batch.req_to_token_pool.req_to_token
            for req, row, end in zip(batch.reqs, batch.req_pool_indices, result.new_seq_lens, strict=True):
                if req.rid in stale:
                    answer = places[row, len(req.origin_input_ids) : end].long()
                    for one in (*pool.k_buffer, *pool.v_buffer):
                        one[answer] = 0
        return result

    return generation


forward_batch_generation = sglforge_stale(forward_batch_generation)
