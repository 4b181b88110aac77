// Stands in for CUDA's header of this name, which adds a class to these functions that
// the emulator does not have.
#pragma once

#include "cuda_pipeline_primitives.h"
