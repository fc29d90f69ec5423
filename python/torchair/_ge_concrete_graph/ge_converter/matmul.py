# SPDX-License-Identifier: Apache-2.0
"""Products of matrices."""
from torchair._ge_concrete_graph import ge_apis as ge
from torchair._ge_concrete_graph.dtypes import DataType
from torchair._ge_concrete_graph.ge_apis import Const
from torchair._ge_concrete_graph.ge_apis import dtype_promote as promote
from torchair._ge_concrete_graph.registry import converts


def _refuse_int8(name, *tensors):
    if any(each.dtype == DataType.DT_INT8 for each in tensors):
        raise RuntimeError(f"{name}: int8 is not supported; use torch_npu.npu_quant_matmul")


def _times(tensor, number):
    if isinstance(number, (int, float)) and number == 1:
        return tensor
    return ge.operator("Mul")(tensor, promote(number, target_dtype=tensor.dtype))


@converts("mm.default")
def _mm(self, mat2, *, meta_outputs):
    _refuse_int8("mm", self, mat2)
    result = ge.operator("MatMul")(self, mat2)
    result.desc.dtype = self.desc.dtype
    return result


@converts("bmm.default")
def _bmm(self, mat2, *, meta_outputs):
    _refuse_int8("bmm", self, mat2)
    result = ge.operator("BatchMatMul")(self, mat2)
    result.desc.dtype = self.desc.dtype
    return result


@converts("matmul.default")
def _matmul(self, other, *, meta_outputs):
    if self.rank < 3 and other.rank < 3:
        return _mm(self, other, meta_outputs=meta_outputs)
    return _bmm(self, other, meta_outputs=meta_outputs)


@converts("addmm.default")
def _addmm(self, mat1, mat2, *, beta=1, alpha=1, meta_outputs):
    dtype = meta_outputs.dtype
    self, mat1, mat2 = promote(self, mat1, mat2, target_dtype=dtype)
    is_row = self.rank == 1 or (self.rank == 2 and self.symsize[0] == 1)
    if beta == 1 and alpha == 1 and is_row and dtype in (DataType.DT_FLOAT, DataType.DT_FLOAT16, DataType.DT_BF16) and self.rank == 1:
        result = ge.operator("MatMulV2")(mat1, mat2, self)
        result.desc.dtype = mat1.desc.dtype
        return result
    product = _times(_mm(mat1, mat2, meta_outputs=meta_outputs), alpha)
    if isinstance(beta, (int, float)) and beta == 0:
        return product
    return ge.operator("Add")(product, _times(self, beta))


@converts("baddbmm.default")
def _baddbmm(self, batch1, batch2, *, beta=1, alpha=1, meta_outputs):
    product = _times(_bmm(batch1, batch2, meta_outputs=meta_outputs), alpha)
    if isinstance(beta, (int, float)) and beta == 0:
        return product
    return ge.operator("Add")(product, _times(self, beta))


@converts("mv.default")
def _mv(self, vec, *, meta_outputs):
    column = ge.operator("Unsqueeze")(vec, axes=[1])
    return ge.operator("Squeeze")(_mm(self, column, meta_outputs=meta_outputs), axis=[1])


@converts("dot.default")
def _dot(self, tensor, *, meta_outputs):
    return ge.operator("ReduceSum")(ge.operator("Mul")(self, tensor), Const([0]))
