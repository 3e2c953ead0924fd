#!/usr/bin/env bash
# The tests that touch a model, over three builds of the pinned engine: as pip compiled it, with AVX2 and no more, and
# without AVX. Only ggml's kernels for the processor are compiled (minutes); needs cmake and a C/C++ compiler, and an
# environment with leap-edge[test]. Arguments go to pytest instead of the folders below.
#     scripts/test_over_builds.sh [tests/end_to_end/test_pages.py]
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
[ $# -gt 0 ] || set -- tests/end_to_end tests/contract tests/inference tests/tasks tests/real_weights
read -r library version < <(python -c 'import llama_cpp, pathlib
print(pathlib.Path(llama_cpp.__file__).parent / "lib", llama_cpp.__version__)')
python -m pip download -q --no-deps --no-binary llama-cpp-python --dest "$work" "llama-cpp-python==$version"
tar -C "$work" -xzf "$work"/llama_cpp_python-*.tar.gz
source=$(echo "$work"/llama_cpp_python-*/vendor/llama.cpp)

compile() {  # NAME OPTION...: the libraries of pip, with other kernels
  cmake -S "$source" -B "$work/$1-build" -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=ON -DGGML_NATIVE=OFF "${@:2}" \
    -DLLAMA_BUILD_COMMON=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_TOOLS=OFF -DLLAMA_BUILD_EXAMPLES=OFF \
    -DLLAMA_BUILD_SERVER=OFF >"$work/$1.log"
  cmake --build "$work/$1-build" --target ggml-cpu --parallel >>"$work/$1.log"
  mkdir -p "$work/$1/lib"
  cp -a "$library/." "$work/$1/lib/"
  rm "$work/$1/lib/"libggml-cpu*
  find "$work/$1-build" -name 'libggml-cpu*' \( -type f -o -type l \) -exec cp -a {} "$work/$1/lib/" \;
}

compile avx2
compile plain -DGGML_AVX=OFF -DGGML_AVX2=OFF -DGGML_FMA=OFF -DGGML_F16C=OFF -DGGML_BMI2=OFF
for build in "$library" "$work/avx2/lib" "$work/plain/lib"; do
  echo "== $build"
  LLAMA_CPP_LIB_PATH=$build python -m pytest "$@"
done
