// SPDX-License-Identifier: MIT
// x (m×k) times `work` matrices (k×k) times an output matrix (k×n), all float32, row by row.
// reference.py has the same weights, bit for bit, and the product in float64.
#include <cmath>
#include <cstring>

#include "gpu_scheduler/workloads/mix.hpp"
#include "gpu_scheduler/workloads/workload.hpp"

namespace {

constexpr uint64_t WEIGHTS_MAX = 64 << 20; // bytes

// out (m×n) = x (m×k) · w (k×n). Each sum runs over p upwards, whatever becomes of the loop over
// j, and products are not contracted (-ffp-contract=off): the bits are the same in every build.
void multiply(const float *x, const float *w, float *__restrict out, uint32_t m, uint32_t k,
              uint32_t n) {
    for (uint32_t i = 0; i < m; i++) {
        float *__restrict row = out + i * n;
        std::memset(row, 0, n * sizeof(float));
        for (uint32_t p = 0; p < k; p++) {
            const float factor = x[i * k + p];
            const float *weights = w + p * n;
            for (uint32_t j = 0; j < n; j++)
                row[j] += factor * weights[j];
        }
    }
}

// A Householder reflection 1 - 2vvᵀ/vᵀv: dense, and orthogonal, so that any number of them keeps
// the magnitude. v has small odd integers: all but the division and the difference is exact.
std::vector<float> reflection(uint64_t seed, uint64_t layer, uint32_t k) {
    std::vector<double> v(k);
    double square = 0;
    for (uint32_t i = 0; i < k; i++) {
        v[i] = 2.0 * static_cast<double>(mix(mix(seed ^ layer << 32) + i) >> 52) - 4095.0;
        square += v[i] * v[i];
    }
    std::vector<float> weights(static_cast<size_t>(k) * k);
    for (uint32_t i = 0; i < k; i++)
        for (uint32_t j = 0; j < k; j++)
            weights[i * k + j] =
                static_cast<float>((i == j ? 1.0 : 0.0) - 2.0 * v[i] * v[j] / square);
    return weights;
}

// Uniform in [-1, 1), 24 bits, scaled so that a product has the magnitude of its factor.
std::vector<float> output_weights(uint64_t seed, uint64_t layer, uint32_t k, uint32_t n) {
    const float scale = static_cast<float>(std::sqrt(3.0 / k));
    std::vector<float> weights(static_cast<size_t>(k) * n);
    for (size_t i = 0; i < weights.size(); i++) {
        auto bits = static_cast<int32_t>(mix(mix(seed ^ layer << 32) + i) >> 40);
        weights[i] = static_cast<float>(bits - (1 << 23)) / (1 << 23) * scale;
    }
    return weights;
}

class Gemm : public Workload {
  public:
    explicit Gemm(Parameters &parameters)
        : m_(parameters.number("m", 4, 1, 1024)), k_(parameters.number("k", 16, 1, 1024)),
          n_(parameters.number("n", 15, 1, 1024)) {
        uint32_t work = parameters.number("work", 1, 1, 65536);
        uint32_t seed = parameters.number("seed", 1, 0, INT32_MAX);
        uint32_t request = m_ * k_ * sizeof(float);
        parameters.limit("a request", "m*k*4", request, REQUEST_MAX, "Make m or k smaller");
        parameters.limit("a result", "m*n*4", m_ * n_ * sizeof(float), RESULT_MAX,
                         "Make m or n smaller");
        parameters.limit("the model", "work*k*k*4", uint64_t{work} * k_ * k_ * sizeof(float),
                         WEIGHTS_MAX, "Make work or k smaller");
        for (uint32_t layer = 0; layer < work; layer++)
            chain_.push_back(reflection(seed, layer, k_));
        output_ = output_weights(seed, work, k_, n_);
        limits.kind = KIND_GEMM;
        limits.request_min = limits.request_max = request;
    }

    uint32_t result(request_slot &at) override {
        float now[REQUEST_MAX / sizeof(float)], next[REQUEST_MAX / sizeof(float)];
        float *from = now, *to = next;
        std::memcpy(now, at.request, m_ * k_ * sizeof(float));
        for (const std::vector<float> &weights : chain_) {
            multiply(from, weights.data(), to, m_, k_, k_);
            std::swap(from, to);
        }
        multiply(from, output_.data(), reinterpret_cast<float *>(at.result), m_, k_, n_);
        return m_ * n_ * sizeof(float);
    }

  private:
    uint32_t m_, k_, n_;
    std::vector<std::vector<float>> chain_;
    std::vector<float> output_;
};

const Registered<Gemm> registered("gemm");

} // namespace
