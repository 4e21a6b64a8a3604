"""What replaces a plain form computes what it computes: outputs and gradients, for every request, in tiny tiles.

The law of long sequences compares both at the tiles that users get. Without the option `impl` there is nothing to compare.
"""

from regard import Form
from regard.testing.subject import (
    TINY,
    NotDeclared,
    Subject,
    T,
    gradients,
    require_close,
)

BOUND = 1e-10  # float64, relative
PLAIN = Form("plain", tile=5, chunk=2)


def law(subject: Subject) -> None:
    if not subject.takes_blocks:
        raise NotDeclared("the class has no option impl, or it names an implementation")
    mixer, plain = subject.make(blocks=TINY), subject.make(blocks=PLAIN)
    x = subject.tokens(2, T).requires_grad_()
    for request in subject.requests():
        y, expected = request(mixer, x), request(plain, x)
        require_close(y, expected, BOUND, f"{request.label}: output")
        if request.context is None:
            found, others = (
                gradients(z, [x, *of.parameters()]) for z, of in ((y, mixer), (expected, plain))
            )
            names = ["x", *(name for name, _ in mixer.named_parameters())]
            for name, own, other in zip(names, found, others, strict=True):
                require_close(own, other, BOUND, f"{request.label}: gradient of {name}")
