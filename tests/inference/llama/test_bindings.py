"""leap's bindings beside llama-cpp-python's: the same signatures, the same structures; and no import of the package."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

from leap_core.errors import LeapModelLoadingError
from leap_core.inference.llama import bindings
from leap_core.inference.llama.bindings import FUNCTIONS, LAYOUTS, TAKING, UnknownLayoutError
from leap_core.inference.llama.library import library
from tests.support.whole_llama import whole_library, whole_multimodal_library


def theirs(name: str):
    whole = whole_multimodal_library() if name.startswith("mtmd_") else whole_library()
    return getattr(whole, name, None)


def size_and_kind(kind: object) -> object:
    """What a call passes: pointers and texts are alike, numbers go by their size."""
    if kind is None:
        return None
    if isinstance(kind, type) and issubclass(kind, ctypes.Structure):
        return [(name, getattr(kind, name).offset, getattr(kind, name).size) for name, *_ in kind._fields_]
    return ("float" if kind in (ctypes.c_float, ctypes.c_double) else "whole", ctypes.sizeof(kind))


@pytest.mark.parametrize("name", [name for name in (*FUNCTIONS, *TAKING) if not name.startswith("ggml_")])
def test_signatures_equal_those_of_llama_cpp_python(name):
    ours, their = getattr(library(), name), theirs(name)
    assert size_and_kind(ours.restype) == size_and_kind(their.restype)
    assert [size_and_kind(each) for each in ours.argtypes] == [size_and_kind(each) for each in their.argtypes]


@pytest.mark.parametrize("name", list(LAYOUTS))
def test_the_layout_of_a_structure_is_llama_cpp_pythons(name):
    ours, their = getattr(library(), name)(), theirs(name)()
    assert size_and_kind(type(ours)) == size_and_kind(type(their))
    for field, kind in ours._fields_:
        if kind in (ctypes.c_int32, ctypes.c_uint32, ctypes.c_bool, ctypes.c_float, ctypes.c_size_t):
            assert getattr(ours, field) == getattr(their, field)


def test_exactly_one_layout_fits_a_build():
    """Rows that a build's defaults cannot tell apart would be a guess."""
    for name, rows in LAYOUTS.items():
        function = library()._found(name)
        writes = [bindings._written(function, fill) for fill in bindings.FILLS]
        same = [first == second for first, second in zip(*writes, strict=True)]
        size = max(n + 1 for n in range(bindings.BUFFER) if same[n])
        kinds = [type(name, (ctypes.Structure,), {"_fields_": list(row)}) for row in rows]
        fitting = [k for k in kinds if bindings._fits(k, writes[0], same, size, bindings.DEFAULTS[name])]
        assert len(fitting) == 1


@pytest.mark.parametrize("change", ["a default", "one byte more", "one field less"])
def test_a_layout_in_no_table_is_refused_with_its_numbers(change):
    name = "llama_context_default_params"
    kind = library().structure(name)
    values = bytearray(bytes(library().llama_context_default_params()))
    size = kind.ctx_other.offset + kind.ctx_other.size

    def write(address: int) -> None:
        data = bytes(values[:size])
        ctypes.memmove(address, data, len(data))

    if change == "a default":
        values[kind.n_ctx.offset] ^= 1
    elif change == "one byte more":
        values, size = values + b"\0", size + 1
    else:
        size = kind.ctx_other.offset
    prototype = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(write)

    class Function:
        def __call__(self, buffer):
            prototype(ctypes.addressof(buffer))

    with pytest.raises(UnknownLayoutError, match=f"llama_context_params.*{size} bytes"):
        bindings.layout_of(Function(), name)


def test_a_function_that_a_build_lacks_names_what_needs_it(monkeypatch):
    monkeypatch.setitem(FUNCTIONS, "llama_adapter_of_the_future", (None,))
    with pytest.raises(LeapModelLoadingError, match="lacks llama_adapter_of_the_future, which LoRA adapters need"):
        _ = library().llama_adapter_of_the_future


@pytest.mark.slow
def test_llama_cpp_python_is_not_imported():
    code = (
        "import sys; from leap_core import Leap; r = Leap.load('builtin'); "
        "list(r.create_conversation().generate_response('hi')); r.unload(); assert 'llama_cpp' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_the_log_stays_silent_when_the_package_comes_later() -> None:
    code = (
        "from leap_core import Leap; from leap_core.models.builtin import model_path; "
        "from leap_core.inference.llama.library import library; library(); "
        "import llama_cpp; llama_cpp.Llama; r = Leap.load(str(model_path()), host='never'); "
        "list(r.create_conversation().generate_response('hi')); r.unload()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("row", range(len(LAYOUTS["llama_context_default_params"])))
def test_each_layout_of_a_context_is_recognized_by_its_defaults(row):
    name = "llama_context_default_params"
    kind = type(name, (ctypes.Structure,), {"_fields_": list(LAYOUTS[name][row])})
    written = kind()
    for field, value in bindings.DEFAULTS[name].items():
        if hasattr(written, field) and value is not None:
            setattr(written, field, value)

    def write(address: int) -> None:
        for field, _ in kind._fields_:  # padding is not written
            place = getattr(kind, field)
            ctypes.memmove(address + place.offset, bytes(written)[place.offset :][: place.size], place.size)

    prototype = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(write)

    class Function:
        def __call__(self, buffer):
            prototype(ctypes.addressof(buffer))

    found = bindings.layout_of(Function(), name)
    assert [each for each, _ in found._fields_] == [each for each, _ in kind._fields_]


def test_functions_removed_in_llama_cpp_1_0_are_not_called():
    gone = ("llama_set_warmup", "llama_set_embd_state_src")
    assert not {*FUNCTIONS, *TAKING} & {*gone}
    newest, before = ({name for name, _ in row} for row in LAYOUTS["llama_context_default_params"][:2])
    assert before - newest == {"defrag_thold"} and newest - before == {"moe_cache_cpu_share"}
    kinds = [
        type("Context", (ctypes.Structure,), {"_fields_": list(row)})
        for row in LAYOUTS["llama_context_default_params"][:2]
    ]
    assert len({kind.cb_eval.offset for kind in kinds}) == 1, "padding takes the place of what is gone"
