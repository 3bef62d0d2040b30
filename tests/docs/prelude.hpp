#pragma once

// The names that fragments in the documents may use without declaring them. Nothing here is defined: blocks are
// compiled, not linked.

#include <accel/accel.hpp>

#include <torch/torch.h>

#include <cstdint>
#include <string>
#include <vector>

namespace docs {

using Batch = torch::data::Example<>;

struct NetImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor input);
};
TORCH_MODULE(Net);

// What the user has: a model, an optimizer, a schedule, data.
extern Net net;
extern torch::optim::AdamW adamw;
extern torch::optim::StepLR schedule;
extern accel::DataLoader<Batch> train_loader;
extern accel::DataLoader<Batch> test_loader;
torch::Tensor loss_of(Net& model, const Batch& batch);
torch::Tensor sum_of_losses(Net& model, const Batch& batch);

// What `prepare` made of it.
extern accel::Accelerator accelerator;
extern Net model;
extern accel::Optimizer optimizer;
extern accel::Scheduler scheduler;
extern accel::DataLoader<Batch> loader;
extern torch::Tensor loss;
extern Batch batch;

}  // namespace docs
