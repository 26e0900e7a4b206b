# Build Horovod into the environment whose bin comes first on PATH (scripts/make_venv.py runs this after pip).
#
# Its last release asks for C++14 where torch's headers need C++17: two lines of it are changed. A third leaves out what
# only a debugger reads, which takes a third of the time. MPI, TensorFlow and MXNet are left out. NCCL is in where torch
# is one for CUDA, nvcc has its whole toolkit and this machine has a GPU; HOROVOD_GPU_OPERATIONS=NCCL asks for it on a
# login node without one.
#
# Where the recipe of this digest worked, this one builds the same, so cells keep the id they had under it:
# stands-for-sha256: 99e748a7ff77f47d730386ca91e6589672a3b96bef89a74f69e41162dbf5dbf2
set -euo pipefail

version=0.28.1

if ! command -v "${CXX:-g++}" >/dev/null || ! command -v make >/dev/null; then
    echo "Horovod is built from source: install a C++ compiler and make (Debian and Ubuntu: build-essential)." >&2
    exit 1
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cores=$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc) # which goes by them, and Snakemake sets the first
echo "Building Horovod $version with $cores cores (4 minutes on 2) ..."

# The metadata that pip asks of the source need nothing but what is installed, so no build environment of its own.
python -m pip download --disable-pip-version-check --no-deps --no-binary horovod --no-build-isolation \
    --dest "$work" "horovod==$version"
tar -xzf "$work/horovod-$version.tar.gz" -C "$work"
cd "$work/horovod-$version"
sed -i 's/set(CMAKE_CXX_STANDARD 14)/set(CMAKE_CXX_STANDARD 17)/' CMakeLists.txt horovod/torch/CMakeLists.txt
sed -i "s/'RelWithDebInfo'/'Release'/" setup.py

export HOROVOD_WITH_PYTORCH=1 HOROVOD_WITH_GLOO=1
export HOROVOD_WITHOUT_MPI=1 HOROVOD_WITHOUT_TENSORFLOW=1 HOROVOD_WITHOUT_MXNET=1
export MAKEFLAGS="-j$cores" CMAKE_BUILD_PARALLEL_LEVEL=$cores
export CXXFLAGS="${CXXFLAGS:-} -w" # its warnings are for its authors

# Print the toolkit's folder, as nvcc knows it: the nvcc on PATH may be a wrapper. Fails where the toolkit is not whole.
toolkit_of_nvcc() {
    local top
    command -v nvcc >/dev/null || return 1
    top=$(nvcc --dryrun -x cu -c /dev/null -o /dev/null 2>&1 | sed -n 's/^#\$ TOP=//p' | head -n 1)
    [ -f "$top/include/cuda_runtime.h" ] && ls "$top"/lib*/libcudart* >/dev/null 2>&1 && cd "$top" && pwd
}

# What keeps NCCL out, in words; nothing where it can be built.
why_gloo() {
    if ! python -c 'import sys, torch; sys.exit(torch.version.cuda is None)'; then
        echo "torch is a build for the CPU"
    elif ! toolkit_of_nvcc >/dev/null; then
        echo "there is no nvcc with its whole CUDA toolkit"
    elif [ "${HOROVOD_GPU_OPERATIONS:-}" != NCCL ] && ! nvidia-smi -L 2>/dev/null | grep -q .; then
        echo "this machine has no GPU (with HOROVOD_GPU_OPERATIONS=NCCL it is built for GPUs all the same)"
    fi
}

reason=$(why_gloo)
if [ -n "$reason" ]; then
    echo "Horovod is built with gloo, for CPUs: $reason."
    unset HOROVOD_GPU_OPERATIONS
    # It takes the toolkit for granted where torch is one for CUDA, even for CPUs alone: let it see a torch for the CPU.
    sed -i 's/(torch.version.cuda is not None)/False/' cmake/Modules/FindPytorch.cmake
else
    export HOROVOD_GPU_OPERATIONS=NCCL
    toolkit=$(toolkit_of_nvcc)
    export CUDAToolkit_ROOT=$toolkit CUDA_HOME=$toolkit HOROVOD_CUDA_HOME=$toolkit PATH=$toolkit/bin:$PATH
    # A site's own NCCL is found by these variables or beside CUDA. The one that torch brings lacks the linker's name.
    if [ -z "${HOROVOD_NCCL_HOME:-}${HOROVOD_NCCL_LIB:-}" ] &&
        nccl=$(python -c 'import nvidia.nccl; print(*nvidia.nccl.__path__)' 2>/dev/null); then
        ln -s "$nccl/lib/libnccl.so.2" "$work/libnccl.so"
        export HOROVOD_NCCL_INCLUDE=$nccl/include HOROVOD_NCCL_LIB=$work HOROVOD_NCCL_LINK=SHARED
    fi
fi

python -m pip install --disable-pip-version-check --no-build-isolation --no-deps .

cd / # away from the source, which has a package of the same name
python - <<'CHECK'
import horovod.torch as hvd

if not hvd.gloo_built():
    raise SystemExit("Horovod was built without gloo")
print("Horovod works, with gloo" + (" and NCCL" if hvd.nccl_built() else ""))
CHECK
