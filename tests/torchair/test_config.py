# SPDX-License-Identifier: Apache-2.0
"""Options: what they take, how they read back, what the engine gets."""
import warnings

import pytest
import torchair

Config = torchair.CompilerConfig


def groups(group, prefix="CompilerConfig"):
    yield prefix, group
    for name, entry in group._options.items():
        if hasattr(entry, "_options"):
            yield from groups(entry, f"{prefix}.{name}")


def test_TA_001_unknown_names():
    for path, group in groups(Config()):
        with pytest.raises(ValueError) as caught:
            group.no_such_option = 1
        text = str(caught.value)
        assert type(group).__name__ in text and "no_such_option" in text, path
        assert all(name in text for name in group._options), path


def test_TA_002_modes():
    config = Config()
    for mode in ("max-autotune", "reduce-overhead", "npugraph_ex"):
        config.mode = mode
        assert config.mode.value == mode
    with pytest.raises(ValueError, match="not in optional list"):
        config.mode = "fast"


def test_TA_003_004_paths(tmp_path):
    config = Config()
    for group, name in ((config.aoe_config, "work_path"), (config.dump_config, "dump_path"), (config.export, "export_path_dir")):
        for value in (str(tmp_path / "absent"), None):
            with pytest.raises(FileNotFoundError, match="is not a file directory"):
                setattr(group, name, value)
        setattr(group, name, str(tmp_path))
    for group, name in ((config.fusion_config, "fusion_switch_file"), (config.aoe_config, "aoe_config_file")):
        with pytest.raises(FileNotFoundError, match="is not a file"):
            setattr(group, name, str(tmp_path / "absent"))
    other = tmp_path / "config.txt"
    other.write_text("{}")
    with pytest.raises(FileNotFoundError, match=r"'\.json' file"):
        config.dump_config.dump_config_path = str(other)
    with pytest.raises(ValueError, match="cannot be empty"):
        config.dump_config.dump_config_path = ""


def test_TA_005_integers():
    config = Config().experimental_config
    with pytest.raises(ValueError, match="<class 'str'>"):
        config.static_model_ops_lower_limit = "1"
    for value in (-2, 2**63):
        with pytest.raises(ValueError, match="out of range"):
            config.static_model_ops_lower_limit = value
    config.static_model_ops_lower_limit = 0
    assert config.static_model_ops_lower_limit.value == "0"


@pytest.mark.parametrize("value", ["", "0", "12", "02|3|4", "0-1", "0|1|2-5|6"])
def test_TA_006_dump_steps(value):
    config = Config().dump_config
    config.dump_step = value
    assert config.dump_step.value == value


@pytest.mark.parametrize("value", ["0ad", "0|2&", "--", "1-", "-1", "02||||34", "1--", "1--6"])
def test_TA_006_dump_steps_refused(value):
    with pytest.raises(ValueError):
        Config().dump_config.dump_step = value


def test_TA_007_dump_layers():
    config = Config().dump_config
    config.dump_layer = "Add_1 Mul/x.y"
    with pytest.raises(ValueError):
        config.dump_layer = "Add|"
    config.dump_data = "stats"
    with pytest.raises(ValueError):
        config.dump_data = "all"


def test_TA_008_dump_file(tmp_path):
    path = tmp_path / "dump.json"
    path.write_text("{}")
    config = Config()
    config.dump_config.dump_config_path = str(path)
    assert config.as_dict()[1]["ge_dump_with_acl_config"] == str(path)


def test_TA_009_values_read_back():
    left, right = Config(), Config()
    assert left == right
    left.debug.run_eagerly = True
    assert left != right and left.debug.run_eagerly.value == "1" and right.debug.run_eagerly.value == "0"
    right.debug.run_eagerly = True
    assert left == right
    assert left.debug.graph_dump.type.value is None
    assert not right.experimental_config.frozen_parameter


def test_TA_010_kinds():
    config = Config()
    with pytest.raises(TypeError):
        config.post_grad_custom_pre_pass = 3
    with pytest.raises(TypeError):
        config.experimental_config.aclgraph._aclnn_static_shape_kernel_sym_value_range = ["a"]
    with pytest.raises(TypeError):
        config.aclgraph_config.use_custom_pool = (1, 2)
    config.aclgraph_config.use_custom_pool = (0, 2)


def test_TA_011_012_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torchair.get_npu_backend()
        config = Config()
        config.mode = "npugraph_ex"
        torchair.get_npu_backend(compiler_config=config)
    config = Config()
    config.debug.aclgraph.clone_input = False
    with pytest.warns(UserWarning) as caught:
        torchair.get_npu_backend(compiler_config=config)
    text = str(caught[0].message)
    assert len(caught) == 1 and "config.debug.aclgraph.clone_input:" in text and "max-autotune" in text
    config = Config()
    config.mode = "reduce-overhead"
    with pytest.warns() as caught:
        torchair.get_npu_backend(compiler_config=config)
    texts = {each.category: str(each.message) for each in caught}
    assert texts[UserWarning].endswith("set_dim_gears, dynamo_export, scope, npu_print")
    assert "npugraph_ex" in texts[DeprecationWarning]


def test_TA_013_014_015_018_engine_options():
    local, glob = Config().as_dict()
    assert local["ge.topoSortingMode"] == "1" and local["ge.jit_compile"] == "2"
    assert local["ge.featureBaseRefreshable"] == "0" and glob["ge.oo.level"] == "O3"
    assert glob["ge.enableSingleStream"] == "false" and glob["ge.exportCompileStat"] == "2"
    assert "ge.oo.constantFolding" not in glob and "ge.oo.deadCodeElimination" not in glob
    config = Config()
    config.ge_config.oo_level = "O1"
    config.experimental_config.topology_sorting_strategy = "BFS"
    config.ge_config.oo_constant_folding = True
    config.ge_config.oo_dead_code_elimination = False
    config.experimental_config.tiling_schedule_optimize = True
    local, glob = config.as_dict()
    assert local["ge.topoSortingMode"] == "3" and local["ge.tiling_schedule_optimize"] == "1"
    assert glob["ge.oo.constantFolding"] == "true" and glob["ge.oo.deadCodeElimination"] == "false"


def test_TA_019_trailer():
    with pytest.raises(ValueError) as caught:
        Config().mode = "fast"
    last = str(caught.value).splitlines()[-1]
    assert last.startswith("[ERROR] ") and " ERR0300" in last and " GRAPH " in last
