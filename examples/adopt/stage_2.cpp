// accel divides the loss and knows when a step is due.
#include "moons.hpp"

#include <accel/accelerator.hpp>

int main() {
  accel::Accelerator accelerator({.gradient_accumulation_steps = 4});
  torch::manual_seed(1);
  moons::Net net;
  accelerator.prepare(net);
  torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(1e-2));
  torch::optim::StepLR scheduler(optimizer, 100, 0.5);
  auto loader = torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(
      moons::Moons(1920).map(torch::data::transforms::Stack<>()), 8);

  for (int epoch = 1; epoch <= 5; ++epoch) {
    double sum = 0.0;
    std::int64_t micro_batches = 0;
    for (auto& batch : *loader) {
      const auto micro = accelerator.accumulate(net);
      auto loss = moons::loss_of(net, accelerator.to_device(batch));
      accelerator.backward(loss);
      ++micro_batches;
      if (micro.closes_window()) {
        optimizer.step();
        scheduler.step();
        optimizer.zero_grad();
      }
      sum += loss.item<double>();
    }
    std::printf("epoch %d  loss %.6f\n", epoch, sum / static_cast<double>(micro_batches));
  }
  torch::save(net, "moons.pt");
}
