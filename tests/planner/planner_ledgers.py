"""Ledgers for the planner's tests: random small ones, and one of a Llama layer's shape."""

from hypothesis import strategies as st

from hf_ckpt.ledger import Buffer, LayerLedger, Op, Source
from hf_ckpt.planner.costs.problem import HeadOption, HostLink, Kind, Problem


class Builder:
    """Writes a ledger op by op."""

    def __init__(self):
        self.buffers, self.ops = [], []

    def buffer(self, nbytes, source, *, saved=False, producer=None):
        index = len(self.buffers)
        self.buffers.append(Buffer(index, nbytes, source, producer, (index,) if saved else (), (nbytes,), "uint8"))
        return index

    def op(self, inputs, outputs, *, rebuildable=True, flops=0, name="op"):
        """``outputs``: pairs (bytes, saved)."""
        index = len(self.ops)
        source = Source.ACTIVATION if rebuildable else Source.ONCE
        made = tuple(self.buffer(n, source, saved=s, producer=index) for n, s in outputs)
        traffic = sum(self.buffers[b].nbytes for b in (*inputs, *made))
        self.ops.append(Op(index, name, "", tuple(inputs), made, flops, traffic, rebuildable))
        return made

    def ledger(self, class_name="Layer"):
        return LayerLedger(class_name, tuple(self.buffers), tuple(self.ops))


@st.composite
def ledgers(draw, max_ops=6, max_saved=4):
    b = Builder()
    b.buffer(draw(st.integers(1, 9)), Source.INPUT, saved=draw(st.booleans()))
    b.buffer(5, Source.PARAMETER, saved=True)
    saved = 0
    for _ in range(draw(st.integers(1, max_ops))):
        inputs = draw(st.lists(st.integers(0, len(b.buffers) - 1), min_size=1, max_size=2, unique=True))
        outputs = []
        for _ in range(draw(st.sampled_from([1, 1, 1, 2]))):
            save = saved < max_saved and draw(st.booleans())
            saved += save
            outputs.append((draw(st.integers(0, 9)), save))
        b.op(inputs, outputs, rebuildable=draw(st.sampled_from([True, True, True, True, False])))
    return b.ledger()


@st.composite
def kinds(draw, **sizes):
    ledger = draw(ledgers(**sizes))
    seconds = tuple(draw(st.integers(0, 9)) * 1.0 for _ in ledger.ops)
    everything = sum(x.nbytes for x in ledger.saved_activations())
    window = st.integers(0, 3)
    return Kind(
        ledger,
        seconds,
        transient=everything + draw(st.integers(0, 6)),
        gradients=draw(st.sampled_from([0, 0, 3, 8])),
        forward=float(draw(window)),
        backward=float(draw(window)),
    )


@st.composite
def problems(draw, max_layers=3, link=False, **sizes):
    types = tuple(draw(st.lists(kinds(**sizes), min_size=1, max_size=2)))
    order = tuple(draw(st.lists(st.integers(0, len(types) - 1), min_size=1, max_size=max_layers)))
    heads = [HeadOption(1, draw(st.integers(0, 30)))]
    if draw(st.booleans()):
        heads.append(HeadOption(4, heads[0].nbytes // 4, 2.0))
    return Problem(
        types,
        order,
        tuple(heads),
        shared=draw(st.integers(0, 3)),
        head_gradients=draw(st.integers(0, 3)),
        late_gradients=draw(st.sampled_from([0, 0, 40])),
        overhead=draw(st.sampled_from([0.0, 1.0])),
        link=HostLink(draw(st.sampled_from([1.0, 3.0])), draw(st.none() | st.integers(0, 60))) if link else None,
    )


def llama_ledger(hidden=4096, inner=14336, tokens=4096, kv=1024):
    """A Llama decoder layer in bf16 with SDPA, op by op as transformers runs it."""
    b = Builder()
    x = b.buffer(2 * tokens * hidden, Source.INPUT)
    weight = b.buffer(0, Source.PARAMETER)

    def norm(source):
        (wide,) = b.op([source], [(4 * tokens * hidden, True)], name="_to_copy")
        (square,) = b.op([wide], [(4 * tokens * hidden, False)], name="pow")
        (mean,) = b.op([square], [(4 * tokens, False)], name="mean")
        (scale,) = b.op([mean], [(4 * tokens, True)], name="rsqrt")
        (scaled,) = b.op([wide, scale], [(4 * tokens * hidden, False)], name="mul")
        (narrow,) = b.op([scaled], [(2 * tokens * hidden, True)], name="_to_copy")
        return b.op([narrow, weight], [(2 * tokens * hidden, True)], name="mul")[0]

    def linear(source, n_in, n_out, saved):
        return b.op([source, weight], [(2 * tokens * n_out, saved)], flops=2 * tokens * n_in * n_out, name="mm")[0]

    def rope(source, width):
        (a,) = b.op([source], [(2 * tokens * width, False)], name="mul")
        (h,) = b.op([source], [(2 * tokens * width, False)], name="cat")
        (c,) = b.op([h], [(2 * tokens * width, False)], name="mul")
        return b.op([a, c], [(2 * tokens * width, True)], name="add")[0]

    n = norm(x)
    q, k, v = (linear(n, hidden, w, s) for w, s in ((hidden, False), (kv, False), (kv, True)))
    q, k = rope(q, hidden), rope(k, kv)
    out, _ = b.op([q, k, v], [(2 * tokens * hidden, True), (4 * tokens * 32, True)], flops=2 * tokens**2 * hidden)
    attended = linear(out, hidden, hidden, False)
    (residual,) = b.op([x, attended], [(2 * tokens * hidden, False)], name="add")
    n = norm(residual)
    gate, up = (linear(n, hidden, inner, True) for _ in range(2))
    (act,) = b.op([gate], [(2 * tokens * inner, True)], name="silu")
    (product,) = b.op([act, up], [(2 * tokens * inner, True)], name="mul")
    down = linear(product, inner, hidden, False)
    b.op([residual, down], [(2 * tokens * hidden, False)], name="add")
    return b.ledger("LlamaDecoderLayer")


def llama_kind(**sizes):
    ledger = llama_ledger(**sizes)
    seconds = tuple(max(op.flops / 4e14, op.traffic / 2e12) + 5e-6 for op in ledger.ops)
    everything = sum(x.nbytes for x in ledger.saved_activations())
    return Kind(ledger, seconds, transient=everything, forward=sum(seconds), backward=2 * sum(seconds))
