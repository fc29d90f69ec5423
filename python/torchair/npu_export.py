# SPDX-License-Identifier: Apache-2.0
"""Models in files."""
from torchair._missing import not_there

dynamo_export = not_there("dynamo_export", "models are not exported yet")
