// A TorchScript backbone that is trained together with a new head, and saved as TorchScript again: on any number of
// ranks. A torch::jit::Module is a model like one of torch::nn; one guard holds both, and they are reduced together.

#include "torchscript.hpp"

#include <accel/accelerator.hpp>

int main(int argc, char** argv) {
  const auto options = torchscript::read_options(argc, argv, example::Twin::kAccel);
  const auto& flags = options.flags;
  accel::Accelerator accelerator({.gradient_accumulation_steps = flags.gradient_accumulation_steps});
  torch::manual_seed(flags.seed);
  auto backbone = torchscript::load_backbone(options);
  auto head = torchscript::make_head(backbone);
  torch::optim::AdamW adamw(torchscript::parameter_groups(backbone, head));
  accelerator.prepare(backbone, head);
  auto optimizer = accelerator.prepare(adamw);
  const accel::Digits digits(accel::DigitsSplit::kTrain);

  example::Record record(flags, accelerator.process_index(), accelerator.num_processes());
  for (std::int64_t step = 0; step < flags.steps; ++step) {
    const auto micro = accelerator.accumulate(backbone, head, {.last = step + 1 == flags.steps});
    const auto batch = accelerator.to_device(
        torchscript::draw(digits, flags, step, accelerator.process_index(), accelerator.num_processes()));
    const auto scores = head->forward(torchscript::features(backbone, batch.data));
    auto loss = torch::nn::functional::cross_entropy(scores, batch.target);
    example::require_finite(loss, step);
    accelerator.backward(loss);
    optimizer.step();
    optimizer.zero_grad();
    record.loss(step, accelerator.mean(loss.item<double>()));
  }
  accelerator.print("test digits read: ", torchscript::accuracy(backbone, head), " %");
  if (accelerator.is_main_process()) torchscript::save_and_check(options, backbone, head);
  record.save(torchscript::parameters(backbone, head));
}
