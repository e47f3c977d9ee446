// SPDX-License-Identifier: MIT
// `work` forward transforms in a row of `points` complex64, each scaled to keep the energy; the
// first `bins` values of the last are the result. Decimation in time, radix 2.
#include <bit>
#include <cmath>
#include <cstring>
#include <numbers>

#include "gpu_scheduler/workloads/workload.hpp"

namespace {

struct Complex {
    float re, im;
};

constexpr uint32_t POINTS_MAX = REQUEST_MAX / sizeof(Complex);

class Fft : public Workload {
  public:
    explicit Fft(Parameters &parameters)
        : points_(parameters.number("points", 32, 2, 65536)),
          bins_(parameters.number("bins", 30, 1, 65536)),
          work_(parameters.number("work", 1, 1, 65536)) {
        uint32_t request = points_ * sizeof(Complex);
        if (!std::has_single_bit(points_))
            parameters.fail("points is " + std::to_string(points_),
                            "Give a power of two: the transform is radix 2");
        if (bins_ > points_)
            parameters.fail("bins is " + std::to_string(bins_) + ", more than points, " +
                                std::to_string(points_),
                            "Give at most as many bins as points");
        parameters.limit("a request", "points*8", request, REQUEST_MAX, "Make points smaller");
        limits.kind = KIND_FFT;
        limits.request_min = limits.request_max = request;
        tables_fill();
    }

    uint32_t result(request_slot &at) override {
        Complex now[POINTS_MAX], next[POINTS_MAX];
        std::memcpy(now, at.request, points_ * sizeof(Complex));
        for (uint32_t i = 0; i < work_; i++) {
            transform(now, next);
            std::memcpy(now, next, points_ * sizeof(Complex));
        }
        std::memcpy(at.result, now, bins_ * sizeof(Complex));
        return bins_ * sizeof(Complex);
    }

  private:
    void tables_fill() {
        scale_ = static_cast<float>(1 / std::sqrt(static_cast<double>(points_)));
        for (uint32_t i = 0; i < points_; i++) {
            double angle = -2 * std::numbers::pi * i / points_;
            twiddle_[i] = {static_cast<float>(std::cos(angle)),
                           static_cast<float>(std::sin(angle))};
            reversed_[i] = 0;
            for (uint32_t bit = 1; bit < points_; bit *= 2)
                reversed_[i] = reversed_[i] * 2 + (i & bit ? 1 : 0);
        }
    }

    void transform(const Complex *in, Complex *out) const {
        for (uint32_t i = 0; i < points_; i++)
            out[i] = {in[reversed_[i]].re * scale_, in[reversed_[i]].im * scale_};
        for (uint32_t half = 1; half < points_; half *= 2)
            for (uint32_t start = 0; start < points_; start += 2 * half)
                butterflies(out + start, half);
    }

    // Joins two transforms of half points each, side by side, into one of twice as many.
    void butterflies(Complex *low, uint32_t half) const {
        Complex *high = low + half;
        uint32_t stride = points_ / (2 * half);
        for (uint32_t i = 0; i < half; i++) {
            Complex w = twiddle_[i * stride];
            Complex t = {high[i].re * w.re - high[i].im * w.im,
                         high[i].re * w.im + high[i].im * w.re};
            high[i] = {low[i].re - t.re, low[i].im - t.im};
            low[i] = {low[i].re + t.re, low[i].im + t.im};
        }
    }

    uint32_t points_, bins_, work_;
    float scale_;
    Complex twiddle_[POINTS_MAX];
    uint32_t reversed_[POINTS_MAX];
};

const Registered<Fft> registered("fft");

} // namespace
