# SPDX-License-Identifier: Apache-2.0
"""Graphs built by hand: operators, constants, attributes, passes."""
import pytest
import torch
import torchair
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
