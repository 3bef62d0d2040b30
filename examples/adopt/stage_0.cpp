// A loop of plain LibTorch. Four micro-batches make a step; the program divides and counts.
#include "moons.hpp"

int main() {
  torch::manual_seed(1);
  moons::Net net;
  torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(1e-2));
  torch::optim::StepLR scheduler(optimizer, 100, 0.5);
  auto loader = torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(
      moons::Moons(1920).map(torch::data::transforms::Stack<>()), 8);

  for (int epoch = 1; epoch <= 5; ++epoch) {
    double sum = 0.0;
    std::int64_t micro_batches = 0;
    for (auto& batch : *loader) {
      auto loss = moons::loss_of(net, batch);
      (loss / 4).backward();
      if (++micro_batches % 4 == 0) {
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
