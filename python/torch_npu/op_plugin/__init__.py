# SPDX-License-Identifier: Apache-2.0
"""Where the vendor's package keeps operators: here they are in ``torch.ops.npu`` and ``torch.ops.atb``."""
