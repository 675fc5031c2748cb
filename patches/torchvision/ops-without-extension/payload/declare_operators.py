# sglforge: without the compiled extension nobody declares the operators that get shape functions on import.
if not _has_ops():
    _declared_by_sglforge = torch.library.Library("torchvision", "FRAGMENT")
    for _operator in ("nms", "qnms"):
        _declared_by_sglforge.define(f"{_operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
