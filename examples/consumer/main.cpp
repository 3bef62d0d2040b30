// The smallest program on accel: a linear model learns y = 2x, alone or under mpirun.
#include <accel/accelerator.hpp>

#include <ATen/Functions.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

int main() {
  accel::Accelerator accelerator({.gradient_accumulation_steps = 2});
  torch::nn::Linear net(torch::nn::LinearOptions(1, 1).bias(false));
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1));
  auto [model, optimizer] = accelerator.prepare(net, sgd);

  for (int step = 0; step < 100; ++step) {
    const auto micro = accelerator.accumulate(model);
    const auto x = at::ones({4, 1}, accelerator.device());
    accelerator.backward(at::mse_loss(model->forward(x), 2 * x));
    optimizer.step();
    optimizer.zero_grad();
  }
  accelerator.print("weight ", net->weight.item<float>(), " on ", accelerator.num_processes(), " process(es)");
}
