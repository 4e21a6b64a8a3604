"""Outputs and all gradients equal the oracle's, for every declared mask and context, alone and together."""

from regard.testing.subject import B, Request, Subject, T, gradients, require_close

ONE_SIDE = ("right padding", "left padding")  # the law on padding proves these equal to no padding


def law(subject: Subject) -> None:
    if subject.oracle is None:
        subject.cannot_judge("outputs and gradients in float64: no oracle is given")
        return
    mixer = subject.make()
    requests = [r for r in subject.requests() if not r.label.endswith(ONE_SIDE)]
    for request in requests:
        x = subject.tokens(B, T).requires_grad_()
        if request.context is not None:
            request = Request(request.label, request.mask, request.context.clone().requires_grad_())
        leaves = [leaf for leaf in (x, request.context, *mixer.parameters()) if leaf is not None]
        names = (
            ["x"]
            + ["context"] * (request.context is not None)
            + [name for name, _ in mixer.named_parameters()]
        )
        y = request(mixer, x)
        expected, _ = subject.consult(mixer, request, x)
        require_close(y, expected, 1e-10, f"{request.label}: output")
        pairs = zip(names, gradients(y, leaves), gradients(expected, leaves), strict=True)
        for name, ours, theirs in pairs:
            require_close(ours, theirs, 1e-10, f"{request.label}: gradient of {name}")
