# sglforge: an sgl_kernel with the attention operators and without AMX weight packing runs on any CPU.
if (view.attention_backend, view.device) == ("intel_amx", "cpu") and not get_platform().has_amx:
    import contextlib

    import torch

    with contextlib.suppress(ImportError, OSError):
        import sgl_kernel  # noqa: F401 - registers its operators
    wanted = {"decode_attention_cpu", "extend_attention_cpu"}
    if wanted == {name for name in (*wanted, "convert_weight_packed") if hasattr(torch.ops.sgl_kernel, name)}:
        logger.warning("sglforge: portable sgl_kernel attention is used in place of AMX.")
        return {}
