# SPDX-License-Identifier: Apache-2.0
"""torchair.explain."""
import pytest
import torch
import torch_npu  # noqa: F401
import torchair


def step(x):
    y = torch.relu(x @ x) + 1
    print("", end="")  # cuts the graph
    return torch.special.i0e(y) * 2


def test_graphs_breaks_and_slow_operators(tmp_path):
    x = torch.randn(8, 8, device="npu")
    with torch.no_grad():
        story = torchair.explain(step, x)
    text = str(story)
    assert text.startswith("2 graph(s), 1 break(s)")
    assert "captured, forward" in text and "aten.mm" in text and "test_explain.py" in text and "in place" in text
    assert [list(graph.fallbacks) for graph in story.graphs] == [[], ["aten::special_i0e.out"]]
    assert all(graph.tasks and graph.streams == 1 and graph.bytes for graph in story.graphs)
    picture = tmp_path / "story.svg"
    story.picture(picture)
    assert "break 1" in picture.read_text()
    with pytest.raises(ValueError, match="svg"):
        story.picture("story.doc")
