"""Columns in the forms in which engines hand them out: dicts of lists or arrays, pandas and Arrow tables."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from ..batch.input.line_media import MEDIA_FIELDS
from ..errors import LeapSerializationError


def columns_of(table: Any) -> dict[str, list[Any]]:
    """The columns as lists of plain values. Raises LeapSerializationError for what is no table."""
    if hasattr(table, "to_pydict"):  # Arrow
        return dict(table.to_pydict())
    if hasattr(table, "iloc"):  # pandas
        return {str(name): [_plain(value) for value in table[name].tolist()] for name in table.columns}
    if isinstance(table, Mapping):
        return {str(name): [_plain(value) for value in _listed(values)] for name, values in table.items()}
    raise LeapSerializationError(
        f"a {type(table).__name__} is no table: give a dict of columns, or a pandas or Arrow one"
    )


def with_columns(table: Any, columns: Mapping[str, list[Any]]) -> Any:
    """The table with these columns beside its own, in its own form. Columns of the same name are replaced."""
    if hasattr(table, "to_pydict"):
        return _arrow_with(table, columns)
    if hasattr(table, "iloc"):
        import pandas

        own = {name: pandas.Series(values, index=table.index, dtype=object) for name, values in columns.items()}
        return table.assign(**own)
    return {**table, **columns}


def _arrow_with(table: Any, columns: Mapping[str, list[Any]]) -> Any:
    import pyarrow

    is_batch = isinstance(table, pyarrow.RecordBatch)
    if is_batch:
        table = pyarrow.Table.from_batches([table])
    for name, values in columns.items():
        place = table.schema.get_field_index(name)
        array = pyarrow.array(values)
        table = table.append_column(name, array) if place < 0 else table.set_column(place, name, array)
    return table.combine_chunks().to_batches()[0] if is_batch and len(table) else table


def _listed(values: Any) -> list[Any]:
    return values.tolist() if hasattr(values, "tolist") else list(values)


def _plain(value: Any) -> Any:
    """A value as JSON has it; a missing one of pandas is None."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return None if isinstance(value, float) and value != value else value


def media_field(name: str, value: Any) -> Any:
    """A picture or sound of a table as a line of a batch has it: the name of a file, or its content. Raises
    LeapSerializationError for bytes that are neither."""
    if isinstance(value, Mapping) and "bytes" in value:  # as datasets keep them
        value = value["bytes"] if value["bytes"] is not None else value.get("path")
    if isinstance(value, (bytes, bytearray)):
        data = MEDIA_FIELDS[name].from_bytes(bytes(value)).data
        return {"name": f"the column {name}", "data": base64.b64encode(data).decode("ascii")}
    return value
