# SPDX-License-Identifier: Apache-2.0
"""All options of a compilation, as a table of groups. Keys of the graph engine stand beside the options that set them."""
from torchair.configs._options import (
    Bool,
    Callback,
    Choice,
    Dict,
    File,
    Folder,
    Group,
    Int,
    Ints,
    Maybe,
    Option,
    Pattern,
    Pool,
    RealPath,
    Text,
    Word,
)

# ---- Debug ----


class GraphDumpConfig(Group):
    OPTIONS = {"type": Choice(None, "txt", "pbtxt", "py"), "path": RealPath()}


class DataDumpConfig(Group):
    OPTIONS = {"type": Choice(None, "npy"), "filter": Callback(), "path": Folder(".")}


class FxSummaryConfig(Group):
    OPTIONS = {"type": Choice(None, "csv"), "skip_compile": Bool(True)}


class AclGraphDebugConfig(Group):
    OPTIONS = {
        "disable_reinplace_inplaceable_ops_pass": Bool(),
        "disable_reinplace_input_mutated_ops_pass": Bool(),
        "disable_mempool_reuse_in_same_fx": Bool(),
        "enable_output_clone": Bool(),
        "static_capture_size_limit": Int(64, 1),
        "clone_input": Bool(True),
        "remove_cat_ops": Bool(True),
    }


class DebugConfig(Group):
    OPTIONS = {
        "graph_dump": GraphDumpConfig,
        "data_dump": DataDumpConfig,
        "fx_summary": FxSummaryConfig,
        "aclgraph": AclGraphDebugConfig,
        "run_eagerly": Bool(local="run_eagerly"),
        "deadlock_check": Bool(local="deadlock_check"),
    }


# ---- Tuning, export, dumps, fusion ----


class AoeConfig(Group):
    OPTIONS = {
        "aoe_mode": Choice(None, "2", local="aoe_mode", only_if_set=True),
        "work_path": Folder("./"),
        "aoe_config_file": File(),
    }


class ExportExperimentalConfig(Group):
    OPTIONS = {
        "enable_record_nn_module_stack": Bool(),
        "auto_atc_config_generated": Bool(),
        "enable_lite_export": Bool(),
    }


class ExportConfig(Group):
    OPTIONS = {
        "export_mode": Bool(),
        "export_path_dir": Folder("./"),
        "export_name": Text(""),
        "weight_name": Dict({}),
        "inputs_name": Dict({}),
        "experimental": ExportExperimentalConfig,
    }


class DataDump(Group):
    OPTIONS = {
        "enable_dump": Bool(),
        "dump_path": Folder("./"),
        "dump_mode": Choice("all", "input", "output"),
        "quant_dumpable": Bool(),
        "dump_step": Pattern(r"(\d+(-\d+)?(\|\d+(-\d+)?)*)?", "0|3-5|10"),
        "dump_layer": Pattern(r'[0-9A-Za-z_ "/.]*', "Add_1 MatMul_2"),
        "dump_data": Choice("tensor", "stats"),
        "dump_config_path": File(".json", glob="ge_dump_with_acl_config", only_if_set=True),
        "data_dump_stage": Choice("optimized", "original"),
    }

    def engine_options(self):
        """The global options while dumps are on."""
        from torchair._ge_concrete_graph import dump_options

        if not self.enable_dump:
            return {}
        options = {
            "ge.exec.enableDump": "1",
            "ge.exec.dumpPath": dump_options.of_process(self.dump_path.value),
            "ge.exec.dumpMode": self.dump_mode.value,
            "ge.exec.dumpData": self.dump_data.value,
            "ge.quant_dumpable": self.quant_dumpable.value,
        }
        for key, option in (("ge.exec.dumpStep", self.dump_step), ("ge.exec.dumpLayer", self.dump_layer)):
            if option:
                options[key] = option.value
        return options


class FusionConfig(Group):
    OPTIONS = {"fusion_switch_file": File(glob="ge.fusionSwitchFile", only_if_set=True)}


# ---- Experimental, inference, engine, capture ----


class AclGraphExperimentalConfig(Group):
    OPTIONS = {
        "_aclnn_static_shape_kernel": Bool(),
        "_aclnn_static_shape_kernel_build_dir": Text(),
        "_aclnn_static_shape_kernel_sym_value_range": Ints(),
        "_aclnn_static_shape_kernel_sym_index": Int(0, 0),
        "_super_kernel_optimize": Bool(),
        "_super_kernel_optimize_options": Dict(),
        "_super_kernel_debug_options": Dict(),
    }


class ExperimentalConfig(Group):
    OPTIONS = {
        "cc_parallel_enable": Bool(glob="ge.exec.enableEngineParallel"),
        "keep_inference_input_mutations": Bool(True),
        "memory_efficiency": Bool(local="ge.featureBaseRefreshable"),
        "frozen_parameter": Bool(),
        "static_model_ops_lower_limit": Int(
            None, -1, local="ge.exec.static_model_ops_lower_limit", only_if_set=True
        ),
        "jit_compile": Choice("auto", codes={"auto": "2"}, local="ge.jit_compile"),
        "npu_fx_pass": Bool(),
        "aot_config_enable_joint_graph": Bool(),
        "aot_config_output_loss_index": Int(0, 0),
        "topology_sorting_strategy": Choice(
            "DFS", "BFS", "RDFS", "StableRDFS", codes={"BFS": "0", "DFS": "1", "RDFS": "2", "StableRDFS": "3"},
            local="ge.topoSortingMode",
        ),
        "enable_ref_data": Bool(),
        "enable_view_optimize": Bool(True),
        "remove_noop_ops": Bool(True, local="remove_noop_ops"),
        "tiling_schedule_optimize": Bool(local="ge.tiling_schedule_optimize"),
        "pattern_fusion_pass": Bool(True),
        "aclgraph": AclGraphExperimentalConfig,
    }


class InferenceConfig(Group):
    OPTIONS = {"dynamic_gears_merge_policy": Choice("zip", "product")}


class GeConfig(Group):
    OPTIONS = {
        "enable_single_stream": Word(glob="ge.enableSingleStream"),
        "oo_level": Choice("O3", "O1", glob="ge.oo.level"),
        "oo_constant_folding": Maybe(glob="ge.oo.constantFolding", only_if_set=True),
        "oo_dead_code_elimination": Maybe(glob="ge.oo.deadCodeElimination", only_if_set=True),
        "export_compile_stat": Choice("2", "0", "1", glob="ge.exportCompileStat"),
        "aicore_num": Text(glob="ge.aicoreNum", only_if_set=True),
        "optimization_switch": Text(glob="ge.optimizationSwitch", only_if_set=True),
    }


class AclGraphConfig(Group):
    OPTIONS = {"use_custom_pool": Pool()}


# ---- The whole ----

# An option of the backend "npugraph_ex" and the one that it sets; "!": the opposite.
NPUGRAPH_EX_OPTIONS = {
    "force_eager": "debug.run_eagerly",
    "use_graph_pool": "aclgraph_config.use_custom_pool",
    "reuse_graph_pool_in_same_fx": "!debug.aclgraph.disable_mempool_reuse_in_same_fx",
    "capture_limit": "debug.aclgraph.static_capture_size_limit",
    "clone_input": "debug.aclgraph.clone_input",
    "clone_output": "debug.aclgraph.enable_output_clone",
    "static_kernel_compile": "experimental_config.aclgraph._aclnn_static_shape_kernel",
    "frozen_parameter": "experimental_config.frozen_parameter",
    "remove_noop_ops": "experimental_config.remove_noop_ops",
    "remove_cat_ops": "debug.aclgraph.remove_cat_ops",
    "pattern_fusion_pass": "experimental_config.pattern_fusion_pass",
    "inplace_pass": "!debug.aclgraph.disable_reinplace_inplaceable_ops_pass",
    "input_inplace_pass": "!debug.aclgraph.disable_reinplace_input_mutated_ops_pass",
    "post_grad_custom_pre_pass": "post_grad_custom_pre_pass",
    "post_grad_custom_post_pass": "post_grad_custom_post_pass",
    "dump_tensor_data": "dump_config.enable_dump",
    "data_dump_stage": "dump_config.data_dump_stage",
    "data_dump_dir": "dump_config.dump_path",
    "_vllm_aclnn_static_kernel_sym_index": "experimental_config.aclgraph._aclnn_static_shape_kernel_sym_index",
    "_vllm_aclnn_static_kernel_sym_range": "experimental_config.aclgraph._aclnn_static_shape_kernel_sym_value_range",
    "super_kernel_optimize": "experimental_config.aclgraph._super_kernel_optimize",
    "super_kernel_optimize_options": "experimental_config.aclgraph._super_kernel_optimize_options",
    "super_kernel_debug_options": "experimental_config.aclgraph._super_kernel_debug_options",
}

# Options of one mode that the other one does not read: path, whether the value counts as set, what is said of it.
_ONLY_CAPTURE = {
    "debug.aclgraph.disable_reinplace_inplaceable_ops_pass": True,
    "debug.aclgraph.disable_reinplace_input_mutated_ops_pass": True,
    "experimental_config.aclgraph._aclnn_static_shape_kernel": True,
    "experimental_config.aclgraph._aclnn_static_shape_kernel_build_dir": ...,
    "debug.aclgraph.clone_input": False,
}
_ONLY_ENGINE = {
    "inference_config.dynamic_gears_merge_policy": "product",
    "debug.fx_summary.type": ...,
    "dump_config.enable_dump": True,
    "ge_config.export_compile_stat": ...,
    "export.experimental.auto_atc_config_generated": True,
    "export.experimental.enable_record_nn_module_stack": True,
    "ge_config.enable_single_stream": True,
    "ge_config.oo_level": "O1",
    "ge_config.oo_constant_folding": ...,
    "ge_config.oo_dead_code_elimination": ...,
    "experimental_config.topology_sorting_strategy": ...,
    "experimental_config.cc_parallel_enable": True,
    "experimental_config.enable_ref_data": True,
    "experimental_config.tiling_schedule_optimize": True,
    "experimental_config.enable_view_optimize": None,
    "fusion_config.fusion_switch_file": ...,
    "experimental_config.static_model_ops_lower_limit": ...,
    "ge_config.aicore_num": ...,
    "ge_config.optimization_switch": ...,
}


class CompilerConfig(Group):
    """What get_npu_backend and get_compiler take."""

    OPTIONS = {
        "mode": Choice("max-autotune", "reduce-overhead", "npugraph_ex"),
        "post_grad_custom_pre_pass": Callback(),
        "post_grad_custom_post_pass": Callback(),
        "debug": DebugConfig,
        "aoe_config": AoeConfig,
        "export": ExportConfig,
        "dump_config": DataDump,
        "fusion_config": FusionConfig,
        "experimental_config": ExperimentalConfig,
        "inference_config": InferenceConfig,
        "ge_config": GeConfig,
        "aclgraph_config": AclGraphConfig,
        "npugraphex_config": Dict({}),
    }

    def as_dict(self):
        """(options of a graph, options of the process), as the engine wants them."""
        local, glob = {}, {}
        for _, option in self.leaves():
            if option.only_if_set and option.raw is None:
                continue
            if option.local:
                local[option.local] = option.engine_value
            if option.glob:
                glob[option.glob] = option.engine_value
        glob.update(self.dump_config.engine_options())
        if self.ge_config.oo_level.value == "O1":
            local["ge.topoSortingMode"] = "3"
        if self.aoe_config.aoe_mode:
            local["work_path"] = self.aoe_config.work_path.value
            if self.aoe_config.aoe_config_file:
                local["aoe_config_file"] = self.aoe_config.aoe_config_file.value
        return local, glob

    def captures(self):
        """Whether programs are captured on a stream; else they become graphs of the engine."""
        return self.mode.value != "max-autotune"

    def ignored(self):
        """Options that are set and that the mode does not read, as 'config.path:value'."""
        mode = self.mode.value
        table = {"max-autotune": _ONLY_CAPTURE, "reduce-overhead": _ONLY_ENGINE}.get(mode, {})
        found = []
        for path, value in table.items():
            option = self.find(path)
            differs = option.raw != option.default
            if value is None or (differs if value is ... else option.raw is value or option.raw == value):
                found.append(f"config.{path}:{option.value if not isinstance(option.raw, bool) else option.raw}")
        return found

    def take_options(self, options):
        """Of torch.compile(options=…): written into this object, where they stay."""
        for name, value in options.items():
            if name not in NPUGRAPH_EX_OPTIONS:
                raise ValueError(f"Invalid option {name!r}, allowed options: {list(NPUGRAPH_EX_OPTIONS)}")
            path = NPUGRAPH_EX_OPTIONS[name]
            if path.startswith("!"):
                path, value = path[1:], not value
            self.assign(path, value)


__all__ = ["CompilerConfig", "NPUGRAPH_EX_OPTIONS", "Option"]
