// Stands in for CUDA's header of this name, without its class
// nvcuda::experimental::pipeline.
#pragma once

#include "cuda_pipeline_primitives.h"
