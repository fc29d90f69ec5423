# SPDX-License-Identifier: Apache-2.0
"""One contestant of models_bench.py on one model of definitions.py or wider.py, in the interpreter that runs this file.

    python contestants.py MODEL CONTESTANT THREADS

    compiled   torch.compile with torchair, mode max-autotune: our graph engine
    replayed   the same in an NPUGraph: without the time that Python takes to call it
    captured   NPUGraph
    eager      PyTorch on the CPU
    inductor   torch.compile on the CPU
    ort        ONNX Runtime, CPU, all optimisations
    openvino   OpenVINO, CPU, latency hint

Says, when it is ready (turns.py): seconds of CPU of the first call, how far its result is from PyTorch's on the CPU, and for
what dynamo compiles on request the number of graphs that it compiles anew.
"""
import copy
import io
import os
import sys
import time
import warnings

import torch

import definitions
import turns
import wider


def first(result):
    return result[0] if isinstance(result, (tuple, list)) else result


def eager(model, inputs):
    model = definitions.use_form(model, "cpu")

    def step():
        with torch.inference_mode():
            return model(*inputs)

    return step


def inductor(model, inputs):
    compiled = torch.compile(definitions.use_form(model, "cpu"))

    def step():
        with torch.no_grad():
            return compiled(*inputs)

    return step


def on_device(model, inputs):
    import torch_npu  # noqa: F401

    return definitions.use_form(model, "npu").npu(), tuple(x.npu() for x in inputs)


def captured(model, inputs):
    model, inputs = on_device(model, inputs)
    with torch.no_grad():
        side = torch.npu.Stream()
        with torch.npu.stream(side):
            for _ in range(3):
                model(*inputs)
        torch.npu.synchronize()
        graph = torch.npu.NPUGraph()
        with torch.npu.graph(graph):
            result = model(*inputs)

    def step(kept=(model, inputs)):  # noqa: ARG001  a graph only knows addresses
        graph.replay()
        torch.npu.synchronize()
        return result

    return step


def compiled(model, inputs):
    model, inputs = on_device(model, inputs)
    from torch_npu.dynamo import torchair

    config = torchair.CompilerConfig()
    config.experimental_config.frozen_parameter = True
    compiled_model = torch.compile(model, backend=torchair.get_npu_backend(compiler_config=config), dynamic=False, fullgraph=True)

    def call():
        with torch.no_grad():
            return compiled_model(*inputs)

    def step():
        result = call()
        torch.npu.synchronize()
        return result

    step.call = call
    return step


def replayed(model, inputs):
    step = compiled(model, inputs)
    side = torch.npu.Stream()  # the published package runs a compiled graph on one stream only
    with torch.npu.stream(side):
        for _ in range(3):
            step()
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph, stream=side):
        result = step.call()

    def replay(kept=step):  # noqa: ARG001  a graph only knows addresses
        graph.replay()
        torch.npu.synchronize()
        return result

    return replay


def is_narrow(model):
    return any(each.dtype == torch.bfloat16 for each in model.parameters())


def onnx_bytes(model, inputs):
    program = torch.onnx.export(model, inputs, dynamo=True, verbose=False)
    out = io.BytesIO()
    program.save(out)
    return out.getvalue()


def ort(model, inputs):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    if is_narrow(model):  # for which it has no products: the rest of a model with small weights is float32 then
        if not any(isinstance(each, definitions.WeightOnly) for each in model.modules()):
            raise NotImplementedError("ONNX Runtime has no products of bfloat16 on a CPU")
        model, inputs = model.float(), tuple(x.float() if x.is_floating_point() else x for x in inputs)
    model = definitions.use_form(model, "onnx")
    session = onnxruntime.InferenceSession(onnx_bytes(model, inputs), options, providers=["CPUExecutionProvider"])
    feed = {each.name: x.numpy() for each, x in zip(session.get_inputs(), inputs)}
    return lambda: torch.from_numpy(session.run(None, feed)[0])


def openvino(model, inputs):
    import openvino as ov

    narrow = is_narrow(model)  # it makes bfloat16 of a model of float32 itself
    model, inputs = model.float(), tuple(x.float() if x.is_floating_point() else x for x in inputs)
    core = ov.Core()
    settings = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": torch.get_num_threads(),
                "INFERENCE_PRECISION_HINT": "bf16" if narrow else "f32"}
    request = core.compile_model(core.read_model(onnx_bytes(model, inputs)), "CPU", settings).create_infer_request()
    feed = {i: x.numpy() for i, x in enumerate(inputs)}
    return lambda: torch.from_numpy(request.infer(feed, share_inputs=True, share_outputs=True)[0])


CONTESTANTS = {each.__name__: each for each in (compiled, replayed, captured, eager, inductor, ort, openvino)}
OURS = ("compiled", "replayed", "captured")


def main():
    name, contestant, threads = sys.argv[1:]
    sys.stdout = sys.stderr  # engines print on theirs
    warnings.simplefilter("ignore")
    torch.set_num_threads(int(threads))
    torch._dynamo.config.allow_rnn = True
    torch.manual_seed(1)
    model, inputs = (definitions.MODELS | wider.MODELS)[name]()
    with torch.inference_mode():
        expected = first(copy.deepcopy(model)(*inputs)).float()
    begun = time.process_time()
    step = CONTESTANTS[contestant](model, inputs)
    result = first(step()).cpu().float()
    seconds = time.process_time() - begun
    apart = ((result - expected).abs().max() / expected.abs().max().clamp(min=1e-6)).item()
    if not apart <= definitions.bound_of(name):
        sys.exit(f"differs from PyTorch by {apart:.2e}, more than {definitions.bound_of(name):.0e}")
    turns.take(step, first=seconds, apart=apart)
    os._exit(0)  # nothing is left to be done, and some engines take seconds to end


if __name__ == "__main__":
    main()
