# Short names; the work is in CMakePresets.json and src/cmake/.
.PHONY: all setup build demo test bench lint peers
all: build

setup:
	@src/cmake/setup.sh

build: setup
	@src/cmake/build.sh release

# Two ranks on this machine train on handwritten digits.
demo: setup
	@src/cmake/build.sh release accel_tool 02_accelerator
	@build/release/accel launch -n 2 -- build/release/examples/02_accelerator

test: setup
	@src/cmake/test.sh

bench: setup
	@src/cmake/build.sh release
	@ctest --test-dir build/release -L '^bench$$' --no-tests=error --verbose

lint: setup
	@src/cmake/lint.sh

# Python with torch and accelerate: what golden numbers and comparisons are made with.
peers: setup
	@src/cmake/setup.sh peers
