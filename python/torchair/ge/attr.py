# SPDX-License-Identifier: Apache-2.0
"""Attributes of operators, for torchair.ge.custom_op."""
from torchair._ge_concrete_graph.dtypes import ge_type

# Numbers of AttrDef.ListValue.ListValueType that are written; texts have none.
_LIST_INT, _LIST_FLOAT, _LIST_BOOL, _LIST_STRING, _LIST_TYPE = 2, 3, 4, 0, 10


class _Attr:
    """A value of a known kind; comparable, and written into an AttrDef by ``merge_to``."""

    def __init__(self, value):
        if value is None:
            raise AssertionError(f"the value of an attribute of kind {type(self).__name__} is None")
        self.value = self.checked(value)

    def checked(self, value):
        return value

    def __eq__(self, other):
        return type(self) is type(other) and self.value == other.value

    __hash__ = None

    def __repr__(self):
        return f"attr.{type(self).__name__}({self.value!r})"

    @property
    def attr(self):
        from torchair._ge_concrete_graph.ge_ir_pb2 import AttrDef

        made = AttrDef()
        self.merge_to(made)
        return made


def _of(value, kinds, what):
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise AssertionError(f"an attribute of kind {what} cannot hold {value!r} of {type(value)}")
    return value


def _scalar(name, field, kinds, convert):
    def checked(self, value):
        return convert(_of(value, kinds, name))

    def merge_to(self, attr):
        setattr(attr, field, self.value)

    return type(name, (_Attr,), {"checked": checked, "merge_to": merge_to})


def _list(name, field, code, kinds, convert):
    def checked(self, value):
        _of(value, (list, tuple), name)
        return [convert(_of(each, kinds, name)) for each in value]

    def merge_to(self, attr):
        attr.list.val_type = code
        getattr(attr.list, field).extend(self.value)

    return type(name, (_Attr,), {"checked": checked, "merge_to": merge_to})


def _nested(name, outer, inner, field, kinds, convert):
    def checked(self, value):
        _of(value, (list, tuple), name)
        return [[convert(_of(each, kinds, name)) for each in _of(row, (list, tuple), name)] for row in value]

    def merge_to(self, attr):
        whole = getattr(attr, outer)
        whole.SetInParent()
        for row in self.value:
            getattr(getattr(whole, inner).add(), field).extend(row)

    return type(name, (_Attr,), {"checked": checked, "merge_to": merge_to})


def _bytes(text):
    return text if isinstance(text, bytes) else text.encode()


def _number_of_type(value):
    return int(ge_type(value))


_TYPE = (int, __import__("torch").dtype)
Int = _scalar("Int", "i", (int,), int)
Float = _scalar("Float", "f", (float, int), float)
Bool = _scalar("Bool", "b", (bool,), bool)
Str = _scalar("Str", "s", (str, bytes), _bytes)
DataType = _scalar("DataType", "dt", _TYPE, _number_of_type)
ListInt = _list("ListInt", "i", _LIST_INT, (int,), int)
ListFloat = _list("ListFloat", "f", _LIST_FLOAT, (float, int), float)
ListBool = _list("ListBool", "b", _LIST_BOOL, (bool,), bool)
ListStr = _list("ListStr", "s", _LIST_STRING, (str, bytes), _bytes)
ListDataType = _list("ListDataType", "dt", _LIST_TYPE, _TYPE, _number_of_type)
ListListInt = _nested("ListListInt", "list_list_int", "list_list_i", "list_i", (int,), int)
ListListFloat = _nested("ListListFloat", "list_list_float", "list_list_f", "list_f", (float, int), float)

__all__ = [
    "Int", "Float", "Bool", "Str", "DataType", "ListInt", "ListFloat", "ListBool", "ListStr", "ListDataType",
    "ListListInt", "ListListFloat",
]
