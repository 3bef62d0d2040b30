// A TorchScript backbone that is trained together with a new head, and saved as TorchScript again.

#include "torchscript.hpp"

int main(int argc, char** argv) {
  const auto options = torchscript::read_options(argc, argv, example::Twin::kBare);
  const auto& flags = options.flags;
  torch::manual_seed(flags.seed);
  auto backbone = torchscript::load_backbone(options);
  auto head = torchscript::make_head(backbone);
  torch::optim::AdamW optimizer(torchscript::parameter_groups(backbone, head));
  const accel::Digits digits(accel::DigitsSplit::kTrain);

  example::Record record(flags);
  for (std::int64_t step = 0; step < flags.steps; ++step) {
    const auto batch = torchscript::draw(digits, flags, step, 0, 1);
    const auto scores = head->forward(torchscript::features(backbone, batch.data));
    auto loss = torch::nn::functional::cross_entropy(scores, batch.target);
    example::require_finite(loss, step);
    loss.backward();
    optimizer.step();
    optimizer.zero_grad();
    record.loss(step, loss.item<double>());
  }
  std::cout << "test digits read: " << torchscript::accuracy(backbone, head) << " %" << std::endl;
  torchscript::save_and_check(options, backbone, head);
  record.save(torchscript::parameters(backbone, head));
}
