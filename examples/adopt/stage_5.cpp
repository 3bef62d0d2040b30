// What is printed is of all ranks, and one of them prints and saves.
#include "moons.hpp"

#include <accel/accelerator.hpp>

int main() {
  accel::Accelerator accelerator({.gradient_accumulation_steps = 4});
  torch::manual_seed(1);
  moons::Net net;
  accelerator.prepare(net);
  torch::optim::AdamW adamw(net->parameters(), torch::optim::AdamWOptions(1e-2));
  torch::optim::StepLR schedule(adamw, 100, 0.5);
  auto [optimizer, scheduler] = accelerator.prepare(adamw, schedule);
  auto loader = accelerator.prepare(
      accel::make_data_loader(moons::Moons(1920).map(torch::data::transforms::Stack<>()), {.batch_size = 8}));

  for (int epoch = 1; epoch <= 5; ++epoch) {
    double sum = 0.0;
    std::int64_t micro_batches = 0;
    for (auto& batch : loader) {
      const auto micro = accelerator.accumulate(net);
      auto loss = moons::loss_of(net, batch);
      accelerator.backward(loss);
      ++micro_batches;
      optimizer.step();
      scheduler.step();
      optimizer.zero_grad();
      sum += loss.item<double>();
    }
    const double mean = accelerator.mean(sum / static_cast<double>(micro_batches));
    if (accelerator.is_main_process()) std::printf("epoch %d  loss %.6f\n", epoch, mean);
  }
  if (accelerator.is_main_process()) torch::save(net, "moons.pt");
}
