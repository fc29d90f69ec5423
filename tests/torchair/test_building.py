# SPDX-License-Identifier: Apache-2.0
"""Graphs built by hand: operators, constants, attributes, passes."""
import pytest
import torch
import torchair
from support_ge import compiled, equal
from torchair._ge_concrete_graph import dtypes, ge_ir_pb2, graph_pass
from torchair._ge_concrete_graph import ge_apis as ge
from torchair._ge_concrete_graph.dtypes import DataType
from torchair._ge_concrete_graph.graph import GeGraph, Input
from torchair.ge import attr, custom_op

FLOAT, INT64 = DataType.DT_FLOAT, DataType.DT_INT64


def written(graph):
    return [(op.type, list(op.input)) for op in graph.op]


def finished(graph, *outputs):
    for output in outputs:
        output.symsize = output.symsize or [2]
    graph.outputs = list(outputs)
    graph_pass.add_net_output(graph)
    return graph


def data(graph, name, host=False, shape=(2,), dtype=FLOAT):
    found = graph.data(name, dtype, list(shape), host=host, index=len(graph.inputs))
    found.symsize = list(shape)
    graph.inputs[name] = Input("arg", len(graph.inputs), found.node)
    return found


def test_TA_065_inputs_by_place_and_by_name():
    texts = []
    for call in (lambda x, y: ge.Add(x, y), lambda x, y: ge.Add(x1=x, x2=y), lambda x, y: ge.Add(x, x2=y)):
        with GeGraph() as graph:
            call(data(graph, "x"), data(graph, "y"))
        texts.append(str(graph.proto))
    assert len(set(texts)) == 1


def test_TA_066_constants():
    with GeGraph():
        natural = [(1, INT64), (1.5, FLOAT), (True, DataType.DT_BOOL), ([], DataType.DT_INT32), ([1.5], DataType.DT_DOUBLE),
                   (torch.ones(2, dtype=torch.bfloat16), DataType.DT_BF16), (torch.ones(2).numpy(), FLOAT)]
        for value, dtype in natural:
            assert ge.Const(value).dtype == dtype, value
        turned = torch.arange(6.0).view(2, 3).t()
        made = ge.Const(turned)
        content = made.node.attr["value"].t
        assert list(content.desc.shape.dim) == [3, 2]
        assert content.data == turned.contiguous().numpy().tobytes()
        for dtype in (DataType.DT_QINT8, DataType.DT_BF16, DataType.DT_COMPLEX32, DataType.DT_FLOAT8_E5M2, DataType.DT_UINT16, DataType.DT_UINT64):
            assert ge.Const([1, 2], dtype).dtype == dtype
        assert "_readable_value" in made.node.attr
        assert "_readable_value" not in ge.Const(1, readable=False).node.attr
        with pytest.raises(ValueError, match="not the Tensor"):
            ge.Const(made)


def test_TA_067_names():
    with GeGraph() as graph:
        assert [ge.Const(1).node.name for _ in range(3)] == ["Const", "Const_1", "Const_2"]
        for name in ("", " ", "Const"):
            with pytest.raises(AssertionError):
                ge.Const(1, node_name=name)
        x = data(graph, "x")
        assert ge.Clone(x).node.type == "TensorMove"
        with pytest.raises(AssertionError):
            ge.Clone(3)
        with pytest.raises(AssertionError):
            ge.Clone(x, dependencies=[3])


def test_TA_068_069_070_071_custom_op_by_name():
    with GeGraph() as graph:
        x, y = data(graph, "x"), data(graph, "y")
        before = str(x.desc)
        made = custom_op("DynamicQuant", inputs={"x": x, "smooth_scales": None, "group_index": y}, outputs=["y", "scale"])
        node = made[0].node
        assert list(node.input) == ["x:0", "", "y:0"] and node.input_desc[1].dtype == ge_ir_pb2.DT_UNDEFINED
        joined = custom_op("ConcatV2", inputs={"x": [x, y], "concat_dim": ge.Const(0)}, outputs=["y"], attrs={"N": attr.Int(2)})
        assert [desc.name for desc in joined.node.input_desc] == ["x0", "x1", "concat_dim"]
        parts = custom_op("Unpack", inputs={"x": x}, outputs=[("y", 2)], attrs={"num": attr.Int(2)})
        assert isinstance(parts, list) and parts[1].tensor.endswith(":1")
        assert custom_op("NoOp", inputs={}, outputs=[]) is None if torchair.ge.custom.ir_of("NoOp") else True
        assert str(x.desc) == before
        for inputs, outputs, attrs in (({"x": 3}, ["y"], {}), ({"x": [x, 3]}, ["y"], {}), ({"x": x}, ["y"], {"num": 2}),
                                       ({"x": x}, [("y", "2")], {"num": attr.Int(2)})):
            with pytest.raises(AssertionError, match="Unpack"):
                custom_op("Unpack", inputs=inputs, outputs=outputs, attrs=attrs)
        with pytest.raises(RuntimeError, match="NoSuchOperator"):
            custom_op("NoSuchOperator", inputs={"x": x}, outputs=["y"])


def test_TA_072_custom_op_by_place():
    with GeGraph() as graph:
        x, y = data(graph, "x"), data(graph, "y")
        assert custom_op("Add", x, y).node.type == "Add"
        assert custom_op("Cast", x, torch.float16, None).node.attr["dst_type"].i == 1
        with pytest.raises(IndexError):
            custom_op("Add", x)
        for args in ((x, 3), (3, y)):
            with pytest.raises(TypeError):
                custom_op("Add", *args)
        with pytest.raises(TypeError):
            custom_op("ConcatV2", x, ge.Const(0), 2)


def test_TA_073_defaults_are_not_written():
    with GeGraph() as graph:
        x = data(graph, "x")
        assert not ge.ReduceSum(x, [0], keep_dims=False).node.attr
        assert ge.ReduceSum(x, [0], keep_dims=True).node.attr["keep_dims"].b
        assert len(ge.MatMulV2(x, x).node.input) == 2


def test_attributes():
    assert attr.Int(1) == attr.Int(1) and attr.Int(1) != attr.Bool(True) and attr.ListInt([1]) != attr.ListInt([2])
    for kind in (attr.Int, attr.ListInt, attr.Str):
        with pytest.raises(AssertionError):
            kind(None)
    assert [kind([]).attr.list.val_type for kind in (attr.ListInt, attr.ListFloat, attr.ListBool, attr.ListStr, attr.ListDataType)] == [2, 3, 4, 0, 10]
    assert attr.ListListInt([[1], [2, 3]]).attr.list_list_int.list_list_i[1].list_i == [2, 3]


def test_types_in_both_directions():
    for each in DataType:
        assert dtypes.from_proto(dtypes.to_proto(each)) == each


def test_numbers_take_the_type_of_the_others():
    with GeGraph() as graph:
        x, i = data(graph, "x", dtype=DataType.DT_FLOAT16), data(graph, "i", dtype=DataType.DT_INT32)
        assert graph.nodes[ge.Add(x, 2.0).node.input[1][:-2]].output_desc[0].dtype == ge_ir_pb2.DT_FLOAT16
        assert graph.nodes[ge.Add(i, 2).node.input[1][:-2]].output_desc[0].dtype == ge_ir_pb2.DT_INT32


def test_TA_027_unused_inputs_go():
    with GeGraph() as graph:
        x, _, z = data(graph, "x"), data(graph, "y"), data(graph, "z")
        finished(graph, ge.Add(x, z))
        graph_pass.run(graph)
    assert [(op.name, op.attr["index"].i) for op in graph.op if op.type == "Data"] == [("x", 0), ("z", 1)]


def test_TA_028_packs_of_sizes():
    with GeGraph() as graph:
        numbers = [data(graph, f"s{i}", host=True, shape=(), dtype=INT64) for i in range(4)]
        readers = []
        for i in range(10):
            pack = ge.Pack(numbers[: 2 + i % 2], N=2 + i % 2)
            attr.Bool(True).merge_to(pack.node.attr["_inputs_all_sym"])
            readers.append(ge.Reshape(data(graph, f"x{i}"), pack))
        finished(graph, *readers)
        graph_pass.run(graph)
    assert not [op for op in graph.op if op.type == "Pack"]
    hosts = [op for op in graph.op if op.type == "Data" and op.output_desc[0].device_type == "CPU"]
    assert sorted(list(op.output_desc[0].shape.dim) for op in hosts) == [[2], [3]]
    with GeGraph() as graph:
        pack = ge.Pack([data(graph, "x")], N=1)
        attr.Bool(True).merge_to(pack.node.attr["_inputs_all_sym"])
        with pytest.raises(AssertionError, match="not a number of the host"):
            graph_pass.optimize_sym_pack(graph)


def scatter_graph():
    """Two inputs that are written, one of them by an operator that returns what it wrote."""
    with GeGraph() as graph:
        var, index, updates = data(graph, "var"), data(graph, "index", dtype=INT64), data(graph, "updates")
        result = ge.Scatter(ge.Clone(var), index, updates, reduce="update")
        ge.Assign(var, result)
    return graph, var, result


def test_TA_050_054_copies_of_written_inputs_go():
    graph, var, result = scatter_graph()
    with graph:
        finished(graph, result)
        bound = graph_pass.run(graph)
    assert bound == {0: 0} and graph.ref_data == {"var"}
    assert graph.nodes["Scatter"].input[0] == "var:0"
    assert not {"Assign", "TensorMove"} & {op.type for op in graph.op}


def test_TA_050_a_reader_keeps_the_copy():
    graph, var, result = scatter_graph()
    with graph:
        finished(graph, result, ge.Relu(var))
        graph_pass.run(graph)
    assert graph.nodes["Scatter"].input[0] == "TensorMove:0"


def test_TA_051_055_assigns_become_outputs():
    with GeGraph() as graph:
        x, y = data(graph, "x"), data(graph, "y")
        ge.Assign(x, ge.Relu(y))
        inner = ge.Clone(y)
        ge.Assign(inner, ge.Relu(x))
        finished(graph)
        bound = graph_pass.run(graph)
    net = graph.nodes["NetOutput"]
    assert bound == {0: 0} and list(net.input) == ["Relu:0", "Assign_1:-1"]
    assert [op.type for op in graph.op].count("Assign") == 1
    graph_pass.set_attributes(graph, 1)
    assert list(graph.attr["_output_dtypes"].list.i) == [int(FLOAT)]


def test_TA_052_written_inputs_become_ref_data():
    with GeGraph() as graph:
        inputs = [data(graph, name) for name in "abcde"]
        a, b, c, d, e = inputs
        ge.Assign(a, ge.Add(d, e))
        ge.Assign(b, ge.Mul(d, e))
        moved = ge.Scatter(ge.Clone(c), ge.Const([0]), ge.Const([1.0], FLOAT), reduce="update")
        ge.Assign(c, moved)
        inner = ge.Clone(d)
        ge.Assign(inner, ge.Relu(e))
        finished(graph, moved)
        bound = graph_pass.run(graph)
    tensors = [torch.zeros(2) for _ in inputs]
    graph_pass.name_ref_data(graph, bound, tensors)
    kinds = [op.type for op in graph.op]
    assert kinds.count("RefData") == 3 and kinds.count("Data") == 2 and kinds.count("Assign") == 1
    for tensor, old in zip(tensors, "abc"):
        op = graph.nodes[f"RefData_2_1_0_{id(tensor)}"]
        assert op.type == "RefData" and op.attr["_origin_data_name"].s.decode() == old
    assert graph.nodes["Scatter"].input[0].startswith("RefData_2_1_0_")


def test_TA_074_operators_newer_than_the_engine(monkeypatch):
    from torchair._ge_concrete_graph import _operators

    newer = {**_operators.OPERATORS, "Relu": ("x:T more?:T", "y:T", ["newer:Int=0"]), "NotThereYet": ("x:T", "y:T", [])}
    monkeypatch.setattr(_operators, "OPERATORS", newer)
    for cache in (_operators.definition, _operators._check_installed):
        cache.cache_clear()
    try:
        with GeGraph() as graph:
            x = data(graph, "x")
            _operators.build("Relu", x, newer=0)
            for call, text in ((lambda: _operators.build("Relu", x, newer=1), "attribute newer is not supported by Relu"),
                               (lambda: _operators.build("Relu", x, x), "input more is not supported by Relu"),
                               (lambda: _operators.build("NotThereYet", x), "NotThereYet is not registered")):
                with pytest.raises(AssertionError, match=text):
                    call()
            assert [op.type for op in graph.op] == ["Data", "Relu"]
    finally:
        for cache in (_operators.definition, _operators._check_installed):
            cache.cache_clear()


def transposed(graph, source, perm, kind):
    made = ge.Transpose(source, ge.Const(perm))
    made.desc.dtype = source.desc.dtype
    made.desc.shape.dim[:] = [source.desc.shape.dim[each] for each in perm]
    bits = ge.Bitcast(made, type=int(kind))
    bits.desc.shape.dim[:] = made.desc.shape.dim
    return bits


def test_transposed_weights_become_attributes():
    byte, small, scales = DataType.DT_UINT8, DataType.DT_FLOAT8_E4M3FN, DataType.DT_FLOAT8_E8M0
    for kind, names, attribute, perms, expected in (
        ("QuantBatchMatmulV4", ("x1", "x2", "x2_scale"), "transpose_x2", ([1, 0], [1, 0]), True),
        ("GroupedMatmul", ("x", "weight", "antiquant_scale"), "transpose_weight", ([0, 2, 1], [0, 2, 1, 3]), True),
        ("GroupedMatmul", ("x", "weight", "scale"), "transpose_weight", ([0, 2, 1], [0, 2, 1]), True),
        ("GroupedMatmulFinalizeRouting", ("x", "w", "scale"), "transpose_w", ([0, 2, 1], [0, 2, 1]), True),
        ("QuantBatchMatmulV4", ("x1", "x2", "x2_scale"), "transpose_x2", ([1, 0], None), False),
        ("GroupedMatmul", ("x", "weight", "scale"), "transpose_weight", ([1, 0, 2], [1, 0, 2]), False),
    ):
        with GeGraph() as graph:
            inputs = {names[0]: data(graph, "x")}
            for name, perm, to in zip(names[1:], perms, (small, scales)):
                shape = [3, 5, 7, 2][: len(perm or [1, 0])]
                source = data(graph, name, shape=shape, dtype=byte)
                inputs[name] = source if perm is None else transposed(graph, source, perm, to)
            if kind == "GroupedMatmul":
                inputs = {name: [value] for name, value in inputs.items()}
            op = graph.add(kind, [(f"{name}0" if isinstance(value, list) else name, value[0] if isinstance(value, list) else value)
                                  for name, value in inputs.items()])
            op.output_desc[0].dtype = 1
            result = torchair.ge.Tensor(op)
            finished(graph, result)
            graph_pass.run(graph)
        kinds = [each.type for each in graph.op]
        assert op.attr[attribute].b is expected, (kind, perms)
        assert kinds.count("Transpose") == (0 if expected else sum(perm is not None for perm in perms))
        assert kinds.count("Bitcast") == sum(perm is not None for perm in perms)
        if expected:
            assert "Const" not in kinds and list(op.input_desc[1].shape.dim) == [3, 5, 7][: len(perms[0])]


def test_bitcasts_of_quantized_weights_come_first():
    with GeGraph() as graph:
        x, weight, scale = data(graph, "x"), data(graph, "w", shape=(6, 8), dtype=DataType.DT_UINT8), data(graph, "s")
        turned = transposed(graph, weight, [1, 0], DataType.DT_FLOAT4_E2M1)
        result = ge.QuantBatchMatmulV3(x, turned, scale, dtype=1)
        finished(graph, result)
        graph_pass.run(graph)
    order = [op.type for op in graph.op]
    assert order.index("Bitcast") < order.index("Transpose") < order.index("QuantBatchMatmulV3")
    product = graph.nodes["QuantBatchMatmulV3"]
    assert product.input[1] == "Transpose:0" and graph.nodes["Transpose"].input[0] == "Bitcast:0"
    assert graph.nodes["Bitcast"].input[0] == "w:0"
    assert list(graph.nodes["Bitcast"].output_desc[0].shape.dim) == [6, 16]
    assert list(product.input_desc[1].shape.dim) == [16, 6]


def test_names_and_layouts_are_written():
    with GeGraph() as graph:
        y = ge.Add(data(graph, "x"), data(graph, "y"))
        y.node.attr["input_layout_info"].list.i.append(1)
        y.node.attr["input_layout_info"].list.s.append(b"NCHW")
        finished(graph, y)
        graph_pass.run(graph)
        graph_pass.normalize(graph)
        add = graph.nodes["Add"]
        assert list(add.attr["_input_name_key"].list.s) == [b"x1", b"x2"] and list(add.attr["_input_name_value"].list.i) == [0, 1]
        assert list(add.attr["_output_name_key"].list.s) == [b"y"]
        assert [desc.layout for desc in add.input_desc] == ["ND", "NCHW"]
        y.node.attr["input_layout_info"].list.i[0] = 7
        with pytest.raises(ValueError, match="input_layout_info"):
            graph_pass.normalize(graph)


def test_TA_091_092_093_prints():
    with GeGraph() as graph:
        x, y = data(graph, "x"), data(graph, "y")
        prints = [ge.PrintV2(ge.StringFormat([x]))]
        ge.Assign(x, ge.Add(x, y))
        prints.append(ge.PrintV2(ge.StringFormat([x])))
        finished(graph)
        graph_pass.run(graph)
    assert f"{prints[0].name}:-1" in prints[1].input
    assert f"{prints[0].name}:-1" in graph.nodes["Add"].input
    assert "Add:-1" in prints[1].input
    assert f"{prints[1].name}:-1" in graph.nodes["NetOutput"].input


def test_TA_122_operators_are_known_before_the_engine():
    from torchair.core import _torchair

    status, inputs, outputs, attributes = _torchair.get_registered_ir_def("Add")
    assert status == "SUCCESS" and [name for name, _ in inputs] == ["x1", "x2"] and attributes == []
    assert _torchair.get_registered_ir_def("NoSuch")[0] != "SUCCESS"
    assert _torchair.check_cann_compat("Add") == "" and "NoSuch" in _torchair.check_cann_compat("NoSuch")


def test_TA_125_formats_of_weights():
    x = torch.randint(-128, 128, (128, 128), dtype=torch.int8).npu()
    packed = torchair.npu_format_cast_via_cpu(x, 29)
    assert packed.shape == x.shape and packed.dtype == torch.int8
    equal(compiled(lambda x: x.to(torch.int32) * 2)(packed), x.to(torch.int32) * 2)
    for wrong, number in ((x, 2), (x, 4), (x.to(torch.int16), 29), (x[0], 29), (x[:, :0], 29)):
        with pytest.raises(RuntimeError, match="npu_format_cast_via_cpu"):
            torchair.npu_format_cast_via_cpu(wrong, number)
