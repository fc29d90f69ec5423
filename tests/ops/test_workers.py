# SPDX-License-Identifier: Apache-2.0
"""Results do not depend on the number of workers: large problems, in processes with one, two and five of them."""

import contextlib
import ctypes
import hashlib
import json
import multiprocessing
import os
import subprocess
import sys
import time
from pathlib import Path

import torch

PATIENCE = 600  # seconds after which what hangs is ended; far more than it takes on the busiest machine


def problems():
    """(operator, arguments by parameter); outputs are the tensors made by `out`."""
    g = torch.Generator().manual_seed(11)

    def rand(*shape):
        return torch.randn(*shape, generator=g)

    def out(*shape, dtype=torch.float32):
        return torch.empty(shape, dtype=dtype)
    x, w = rand(700, 900), rand(900, 500)
    f32 = torch.float32
    yield "Mm", {"self": x, "mat2": w, "out": out(700, 500), "cubeMathType": 0}
    yield "Mm", {"self": x[:3], "mat2": rand(800, 900).t(), "out": out(3, 800), "cubeMathType": 0}
    for dims in ([0], [1], [0, 1]):
        shape = [size for d, size in enumerate(x.shape) if d not in dims]
        yield "ReduceSum", {"self": x, "dims": dims, "keepDims": False, "dtype": f32, "out": out(*shape)}
    yield "VarCorrection", {"self": x, "dim": [0, 1], "correction": 1, "keepdim": False, "out": out()}
    yield "Softmax", {"self": x, "dim": 0, "out": out(700, 900)}
    yield "Cumsum", {"self": x, "dim": 0, "dtype": f32, "out": out(700, 900)}
    yield "GeluV2", {"x": x, "approximate": 0, "y": out(700, 900)}
    yield "Sort", {"self": x, "stable": True, "dim": 1, "descending": False, "valuesOut": out(700, 900),
                   "indicesOut": out(700, 900, dtype=torch.int64)}
    index = torch.randint(0, 700, (5000,), generator=g)
    yield "IndexAdd", {"self": x, "dim": 0, "index": index, "source": rand(5000, 900), "alpha": 1, "out": out(700, 900)}
    yield "LayerNormBackward", {
        "gradOut": rand(700, 900), "input": x, "normalizedShape": [900], "mean": x.mean(1, keepdim=True),
        "rstd": x.var(1, keepdim=True, correction=0).rsqrt(), "weightOptional": rand(900), "biasOptional": rand(900),
        "outputMask": [True, True, True], "gradInputOut": out(700, 900), "gradWeightOut": out(900),
        "gradBiasOut": out(900)}
    yield "Convolution", {
        "input": rand(2, 16, 56, 56), "weight": rand(32, 16, 3, 3), "bias": rand(32), "stride": [1, 1], "padding": [1, 1],
        "dilation": [1, 1], "transposed": False, "outputPadding": [0, 0], "groups": 1, "output": out(2, 32, 56, 56),
        "cubeMathType": 0}
    q = rand(1, 4, 300, 64)
    yield "FlashAttentionScore", {
        "query": q, "key": rand(1, 4, 1500, 64), "value": rand(1, 4, 1500, 64), "realShiftOptional": None,
        "dropMaskOptional": None, "paddingMaskOptional": None, "attenMaskOptional": None, "prefixOptional": None,
        "scaleValue": 0.125, "keepProb": 1.0, "preTokens": 65536, "nextTokens": 65536, "headNum": 4, "inputLayout": "BNSD",
        "innerPrecise": 0, "sparseMode": 0, "softmaxMaxOut": out(1, 4, 300, 8), "softmaxSumOut": out(1, 4, 300, 8),
        "softmaxOutOut": None, "attentionOutOut": out(1, 4, 300, 64)}


def digest(made):
    import aclnn
    lines = []
    for name, arguments in made:
        op = aclnn.TABLE[name]
        aclnn.device().reset()
        values, placed = {}, []
        for (c_type, parameter), role in zip(op.parameters, op.roles):
            value = arguments[parameter]
            if isinstance(value, torch.Tensor):
                tensor = aclnn.Placed(value.shape, value.dtype)
                if not role.startswith("out"):
                    tensor.write(value)
                else:
                    tensor.view.zero_()
                    placed.append(tensor)
                value = tensor
            values[parameter] = value
        objects = aclnn.Objects()
        aclnn.run(op, aclnn.pack(op, values, objects))
        aclnn.device().synchronize()
        objects.destroy()
        data = b"".join(ctypes.string_at(tensor.address, tensor.raw.numel()) for tensor in placed)
        lines.append(f"{name} {hashlib.sha256(data).hexdigest()}")
    return "\n".join(lines)


def workers_left(expected):
    """How many workers there are once those have gone that the device starts while all are busy for long."""
    patience = time.monotonic() + PATIENCE / 4
    while True:
        names = []
        for task in Path("/proc/self/task").iterdir():
            with contextlib.suppress(OSError):  # it has just ended
                names.append((task / "comm").read_text().strip())
        if names.count("reprise-worker") == expected or time.monotonic() > patience:
            return names.count("reprise-worker")
        time.sleep(0.01)


def main():
    """Prints digests and threads by number of workers, which a process reads once: each number has a fork of this one."""
    torch.set_num_threads(1)  # there must be no thread when it forks
    made, answers, context = list(problems()), {}, multiprocessing.get_context("fork")
    for workers in (1, 2, 5):
        ours, theirs = context.Pipe(duplex=False)

        def work(workers=workers, theirs=theirs):
            os.environ["REPRISE_WORKERS"] = str(workers)
            theirs.send((digest(made), workers_left(workers)))

        child = context.Process(target=work)
        child.start()
        theirs.close()
        answers[workers] = ours.recv()
        child.join()
        assert child.exitcode == 0
    print(json.dumps(answers))


def test_results_do_not_depend_on_the_number_of_workers():
    environment = dict(os.environ, OPENBLAS_NUM_THREADS="1", PYTHONPATH=str(Path(__file__).parent))
    done = subprocess.run([sys.executable, __file__], env=environment, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    (one, workers), (two, workers_of_two), (five, workers_of_five) = json.loads(done.stdout.splitlines()[-1]).values()
    assert (workers, workers_of_two, workers_of_five) == (1, 2, 5)  # they have read the number
    assert len(one.splitlines()) == sum(1 for _ in problems())
    assert one == two == five


if __name__ == "__main__":
    main()
