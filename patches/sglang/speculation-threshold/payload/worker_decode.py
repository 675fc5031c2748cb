# sglforge: plain decode between speculative steps.
def _should_disable_spec(self, batch: ModelWorkerBatch) -> bool:
    """Tell whether a decode batch is too large to speculate."""
    return (
        0 < self.spec_disable_batch_threshold < len(batch.seq_lens)
        and batch.forward_mode.is_decode()
        and not batch.is_extend_in_batch
    )

def _forward_decode_without_spec(self, batch: ModelWorkerBatch) -> GenerationBatchResult:
    """Decode one token per request, without drafts.

    It leaves what a verification that accepts no draft leaves: target KV and draft KV are true up to the new
    lengths, and the next draft input is complete, so that the next step may speculate again.
    """
    device_module = torch.get_device_module(self.device)
    # The lengths were made on the schedule stream; without this their memory could be given away meanwhile.
    batch.seq_lens.record_stream(device_module.current_stream())
    seq_lens, seq_lens_cpu, seq_lens_sum = batch.seq_lens, batch.seq_lens_cpu, batch.seq_lens_sum
    target_result = self._plain_decode_on_target(batch)
    tokens = target_result.next_token_ids.to(torch.int32)
    # Not earlier: whoever waits for it overwrites metadata that the target's forward reads.
    verify_done = device_module.Event()
    verify_done.record()
    # The draft reads the same token at the same position and slot.
    batch.seq_lens, batch.seq_lens_cpu, batch.seq_lens_sum = seq_lens, seq_lens_cpu, seq_lens_sum
    accept_lens = torch.ones(len(seq_lens), dtype=torch.int32, device=self.device)
    draft_output = self._extend_draft_by_one(
        batch, tokens, accept_lens, target_result.logits_output.hidden_states
    )
    probs = torch.softmax(draft_output.next_token_logits, dim=-1)
    topk_p, topk_index = fast_topk(probs, self.topk, dim=-1)
    next_draft_input = self._spec_draft_input(
        tokens,
        new_seq_lens=seq_lens + 1,
        verify_done=verify_done,
        topk_p=topk_p,
        topk_index=topk_index,
        hidden_states=draft_output.hidden_states,
    )
    # The output processor takes num_draft_tokens ids per request and reads the first accept_lens of them.
    padded_ids = torch.zeros(
        (len(seq_lens), self.speculative_num_draft_tokens), dtype=torch.int32, device=self.device
    )
    padded_ids[:, 0] = tokens
    if batch.return_logprob:
        logprobs = target_result.logits_output.next_token_logprobs
        target_result.logits_output.next_token_logprobs = logprobs.unsqueeze(1)
    return self._spec_result(target_result, padded_ids.flatten(), accept_lens, next_draft_input)

def _plain_decode_on_target(self, batch: ModelWorkerBatch) -> GenerationBatchResult:
    """Decode the last token of each request at position seq_lens, and sample the next one."""
    # The scheduler has put a slot for that position into req_to_token already.
    slots = self.req_to_token_pool.req_to_token[batch.req_pool_indices, batch.seq_lens]
    batch.input_ids = self._spec_last_tokens(batch.spec_info).to(torch.int64)
    batch.out_cache_loc = slots.to(torch.int64)
    # Out of place: the scheduler holds these tensors.
    batch.seq_lens_sum = batch.seq_lens_sum + len(batch.seq_lens)
    batch.seq_lens_cpu = batch.seq_lens_cpu + 1
    batch.seq_lens = batch.seq_lens + 1
    # Attention backends take a decode with spec_info for a step of the draft.
    batch.spec_info = None
    batch.capture_hidden_mode = self._plain_decode_hidden_mode()
    self._sample_as_verify_does(batch.sampling_info)
    runner = self.target_worker.model_runner
    verify_state = (runner.attn_backend, runner.graph_runner)
    # The verification's graphs hold num_draft_tokens rows per request, and would take this batch.
    runner.attn_backend, runner.graph_runner = self.plain_decode_state or (runner.attn_backend, None)
    try:
        return self.target_worker.forward_batch_generation(batch)
    finally:
        runner.attn_backend, runner.graph_runner = verify_state

def _extend_draft_by_one(self, batch: ModelWorkerBatch, tokens, accept_lens, hidden_states):
    """Write the draft KV of one token per request, and propose the token after it."""
    runner = self.draft_worker.draft_runner
    draft_input = EagleDraftInput(
        hidden_states=hidden_states, num_tokens_per_req=1, num_tokens_for_logprob_per_req=1
    )
    with (
        self.draft_worker.draft_tp_context(runner.tp_group),
        speculative_moe_backend_context(),
        speculative_moe_a2a_backend_context(),
    ):
        forward_batch = draft_input.prepare_for_extend_to_fill_draft_kvcache(batch, tokens, 1, runner, None)
        self._spec_note_accepted(draft_input, accept_lens)
        return runner.forward(forward_batch, skip_attn_backend_init=True).logits_output
