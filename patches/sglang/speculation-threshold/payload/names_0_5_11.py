# sglforge: what this release calls what plain decode reads and returns.
def _spec_last_tokens(self, draft_input: EagleDraftInput):
    return draft_input.verified_id

def _spec_draft_input(self, tokens, **fields) -> EagleDraftInput:
    return EagleDraftInput(verified_id=tokens, **fields)

def _spec_note_accepted(self, draft_input: EagleDraftInput, accept_lens) -> None:
    draft_input.num_accepted_drafts = accept_lens - 1
    draft_input.num_accepted_tokens = accept_lens

def _spec_result(self, target_result, token_ids, accept_lens, next_draft_input) -> GenerationBatchResult:
    return GenerationBatchResult(
        logits_output=target_result.logits_output,
        next_token_ids=token_ids,
        can_run_cuda_graph=target_result.can_run_cuda_graph,
        next_draft_input=next_draft_input,
        accept_lens=accept_lens,
        routed_experts_output=target_result.routed_experts_output,
    )

def _plain_decode_hidden_mode(self) -> CaptureHiddenMode:
    return CaptureHiddenMode.FULL

def _sample_as_verify_does(self, sampling_info) -> None:
    """Leave out what a verification leaves out, so that load never changes what a request says."""
    # Penalties and bias stay: this release's verification applies them, too.
    sampling_info.has_custom_logit_processor = False
