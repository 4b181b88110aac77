#include <torch/extension.h>
#include <cuda_runtime.h>
#include <cmath>

#define CHECK_INPUT(x) TORCH_CHECK(x.is_cuda() && x.is_contiguous(), #x " must be contiguous, on a GPU")

static constexpr int THREADS = 64;

// one block per sample: loss = log(sum(exp(logits))) - logits[label]
__global__ void cross_entropy_kernel(const float *logits, const int64_t *labels, float *losses, int classes)
{
	__shared__ float buffer[THREADS];
	const int tid = threadIdx.x;
	const float *row = logits + (int64_t)blockIdx.x * classes;

	float largest = -INFINITY;
	for (int c = tid; c < classes; c += THREADS)
		largest = fmaxf(largest, row[c]);
	buffer[tid] = largest;
	__syncthreads();
	for (int s = THREADS / 2; s > 0; s >>= 1) {
		if (tid < s)
			buffer[tid] = fmaxf(buffer[tid], buffer[tid + s]);
		__syncthreads();
	}
	largest = buffer[0];
	__syncthreads();

	float sum = 0.0f;
	for (int c = tid; c < classes; c += THREADS)
		sum += expf(row[c] - largest);
	buffer[tid] = sum;
	__syncthreads();
	for (int s = THREADS / 2; s > 0; s >>= 1) {
		if (tid < s)
			buffer[tid] += buffer[tid + s];
		__syncthreads();
	}

	if (tid == 0)
		losses[blockIdx.x] = logf(buffer[0]) + largest - row[labels[blockIdx.x]];
}

torch::Tensor cross_entropy(torch::Tensor logits, torch::Tensor labels)
{
	CHECK_INPUT(logits);
	CHECK_INPUT(labels);
	TORCH_CHECK(labels.dtype() == torch::kInt64, "labels must be int64");
	auto losses = torch::empty({logits.size(0)}, logits.options());
	cross_entropy_kernel<<<logits.size(0), THREADS>>>(logits.data_ptr<float>(), labels.data_ptr<int64_t>(),
	                                                  losses.data_ptr<float>(), logits.size(1));
	return losses.mean();
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m)
{
	m.def("cross_entropy", &cross_entropy, "mean cross entropy loss");
}
