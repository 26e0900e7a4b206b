# Build Horovod into the environment whose bin comes first on PATH (scripts/make_venv.py runs this after pip).
#
# Its last release asks for C++14 where torch's headers need C++17: two lines of it are changed. A third leaves out what
# only a debugger reads, which takes a third of the time. MPI, TensorFlow and MXNet are left out. NCCL is in where torch
# is one for CUDA and there is nvcc.
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

if python -c 'import sys, torch; sys.exit(torch.version.cuda is None)' && command -v nvcc >/dev/null; then
    export HOROVOD_GPU_OPERATIONS=NCCL
    # A site's own NCCL is found by these variables or beside CUDA. The one that torch brings lacks the linker's name.
    if [ -z "${HOROVOD_NCCL_HOME:-}${HOROVOD_NCCL_LIB:-}" ] &&
        nccl=$(python -c 'import nvidia.nccl; print(*nvidia.nccl.__path__)' 2>/dev/null); then
        ln -s "$nccl/lib/libnccl.so.2" "$work/libnccl.so"
        export HOROVOD_NCCL_INCLUDE=$nccl/include HOROVOD_NCCL_LIB=$work HOROVOD_NCCL_LINK=SHARED
    fi
fi

python -m pip install --disable-pip-version-check --verbose --no-build-isolation --no-deps .

cd / # away from the source, which has a package of the same name
python - <<'CHECK'
import horovod.torch as hvd

if not hvd.gloo_built():
    raise SystemExit("Horovod was built without gloo")
print("Horovod works, with gloo" + (" and NCCL" if hvd.nccl_built() else ""))
CHECK
