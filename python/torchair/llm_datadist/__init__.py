# SPDX-License-Identifier: Apache-2.0
"""Transfer of caches between machines, which one CPU has no use for."""
from torchair._missing import not_there

_WHY = "there is one device, which is the CPU; move caches with copy_"
create_npu_tensors = not_there("llm_datadist.create_npu_tensors", _WHY)
LLMDataDist = not_there("llm_datadist.LLMDataDist", _WHY)
CacheManager = not_there("llm_datadist.CacheManager", _WHY)
