#pragma once

// A simulation that owns MPI: rods that are heated at random and cool down, their cells spread over ranks, and what a
// network that is to foresee them looks like.

#include "common.hpp"

#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1  // the C interface alone: the old C++ one wants a library of its own
#endif
#include <mpi.h>
#include <algorithm>
#include <utility>

namespace simulation {

constexpr int kCells = 64;
constexpr int kTimeSteps = 200;
constexpr float kDiffusion = 0.4F;  // of a time step, in units of a cell; stable below 0.5

/// Who does what: the first ranks train, the rest simulate. A rank that is alone does both.
struct Roles {
  explicit Roles(int trainers_of_job) {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    trainers = std::min(trainers_of_job, size);
    trains = rank < trainers;
    simulates = rank >= trainers || size == 1;
    MPI_Comm_split(MPI_COMM_WORLD, trains ? 0 : 1, rank, &part);
  }
  /// At the normal end, on all ranks together; not while an exception unwinds one of them.
  void end() { MPI_Comm_free(&part); }

  [[nodiscard]] int first_simulator() const { return size == 1 ? 0 : trainers; }

  int rank = 0;
  int size = 1;
  int trainers = 1;
  bool trains = true;
  bool simulates = true;
  MPI_Comm part = MPI_COMM_NULL;  // the ranks that do the same
};

inline int trainers_among(int ranks) {
  return std::max(1, ranks / 2);
}
inline int ranks_of_job() {
  int size = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

/// Temperatures before and after, of `batch_size` rods: [rods, cells].
struct Fields {
  torch::Tensor before;
  torch::Tensor after;
};

/// Two warm spots on each rod; alike on all ranks, whoever asks.
inline torch::Tensor heated(const example::Flags& flags, std::int64_t step) {
  auto generator = at::detail::createCPUGenerator(flags.seed * 1'000'003 + static_cast<std::uint64_t>(step));
  const auto cell = torch::arange(kCells, torch::kFloat) / kCells;
  auto field = torch::zeros({flags.batch_size, kCells});
  for (int spot = 0; spot < 2; ++spot) {
    const auto place = torch::rand({flags.batch_size, 1}, generator);
    const auto warmth = torch::rand({flags.batch_size, 1}, generator);
    field += warmth * (-200.0 * (cell - place).square()).exp();
  }
  return field;
}

/// Cools the rods down, on all simulating ranks together: each has some cells of every rod, [cells, rods], and gets the
/// cells beside its own from its neighbours before each time step. The whole result is on the first of them.
inline Fields simulate(const example::Flags& flags, const Roles& roles, std::int64_t step) {
  int rank = 0;
  int size = 1;
  MPI_Comm_rank(roles.part, &rank);
  MPI_Comm_size(roles.part, &size);
  if (kCells % size != 0) throw std::invalid_argument("expected 1, 2, 4, ... simulating ranks: 64 cells are dealt");
  const int cells = kCells / size;
  const auto rods = static_cast<int>(flags.batch_size);
  const auto before = heated(flags, step);
  auto own = torch::zeros({cells + 2, rods});  // with a halo on either side
  own.narrow(0, 1, cells).copy_(before.t().narrow(0, rank * cells, cells));
  const auto row = [&](int index) { return own.data_ptr<float>() + static_cast<std::ptrdiff_t>(index) * rods; };
  const int left = rank > 0 ? rank - 1 : MPI_PROC_NULL;  // the ends of a rod are kept at 0
  const int right = rank + 1 < size ? rank + 1 : MPI_PROC_NULL;
  for (int time = 0; time < kTimeSteps; ++time) {
    MPI_Sendrecv(row(1), rods, MPI_FLOAT, left, 0, row(cells + 1), rods, MPI_FLOAT, right, 0, roles.part,
                 MPI_STATUS_IGNORE);
    MPI_Sendrecv(row(cells), rods, MPI_FLOAT, right, 1, row(0), rods, MPI_FLOAT, left, 1, roles.part,
                 MPI_STATUS_IGNORE);
    const auto inner = own.narrow(0, 1, cells);
    const auto bend = own.narrow(0, 0, cells) - 2.0 * inner + own.narrow(0, 2, cells);
    inner.add_(bend, kDiffusion);
  }
  auto after = torch::zeros({kCells, rods});
  MPI_Gather(row(1), cells * rods, MPI_FLOAT, after.data_ptr<float>(), cells * rods, MPI_FLOAT, 0, roles.part);
  return {before, after.t().contiguous()};
}

/// The first simulating rank deals the rods of a step to the trainers.
inline void send_fields(const example::Flags& flags, const Roles& roles, const Fields& fields) {
  const std::int64_t share = flags.share(roles.trainers);
  for (int trainer = 0; trainer < roles.trainers; ++trainer)
    for (const auto& field : {fields.before, fields.after})
      MPI_Send(field.narrow(0, trainer * share, share).const_data_ptr(), static_cast<int>(share) * kCells, MPI_FLOAT,
               trainer, 0, MPI_COMM_WORLD);
}

inline Fields receive_fields(const example::Flags& flags, const Roles& roles) {
  const std::int64_t share = flags.share(roles.trainers);
  Fields fields{torch::empty({share, kCells}), torch::empty({share, kCells})};
  for (auto* field : {&fields.before, &fields.after})
    MPI_Recv(field->data_ptr(), static_cast<int>(share) * kCells, MPI_FLOAT, roles.first_simulator(), 0, MPI_COMM_WORLD,
             MPI_STATUS_IGNORE);
  return fields;
}

/// One step of a rank that simulates. A rank that does both keeps the fields; others send them away.
inline Fields simulation_step(const example::Flags& flags, const Roles& roles, std::int64_t step) {
  Fields fields = simulate(flags, roles, step);
  if (!roles.trains && roles.rank == roles.first_simulator()) send_fields(flags, roles, fields);
  return fields;
}

/// The fields that this trainer learns from in this step.
inline Fields next_fields(const example::Flags& flags, const Roles& roles, std::int64_t step) {
  Fields fields = roles.simulates ? simulation_step(flags, roles, step) : receive_fields(flags, roles);
  fields.before = flags.met(fields.before, roles.rank, step);
  return fields;
}

/// A network that foresees 200 time steps at once.
inline torch::nn::Sequential make_surrogate(const example::Flags& flags) {
  torch::manual_seed(flags.seed);
  return torch::nn::Sequential(torch::nn::Linear(kCells, 128), torch::nn::Tanh(), torch::nn::Linear(128, kCells));
}

/// The trained weights go from rank 0 to every rank, by the program's own means.
inline void send_weights(torch::nn::Sequential& surrogate) {
  for (const auto& parameter : surrogate->parameters())
    MPI_Bcast(parameter.detach().data_ptr(), static_cast<int>(parameter.numel()), MPI_FLOAT, 0, MPI_COMM_WORLD);
}

/// On the ranks that simulate: how far the surrogate is from the simulation, on rods that nobody has learned from.
inline void try_surrogate(const example::Flags& flags, const Roles& roles, torch::nn::Sequential& surrogate) {
  if (!roles.simulates) return;
  const torch::NoGradGuard no_grad;
  const Fields fields = simulate(flags, roles, flags.steps);
  if (roles.rank != roles.first_simulator()) return;
  const auto distance = [&](const torch::Tensor& guess) { return (guess - fields.after).norm() / fields.after.norm(); };
  std::printf("rank %d simulates on: the surrogate is off by %.3f of the field, a guess of no change by %.3f\n",
              roles.rank, distance(surrogate->forward(fields.before)).item<double>(),
              distance(fields.before).item<double>());
}

/// The host's own way to end a job in which one rank cannot go on.
inline void end_job(const std::exception& error) {
  std::fprintf(stderr, "simulation: %s\n", error.what());
  MPI_Abort(MPI_COMM_WORLD, 1);
}

struct Options {
  example::Flags flags;
  std::string level = "multiple";
};

inline Options read_options(int argc, char** argv, example::Twin twin) {
  Options options;
  options.flags = example::read_flags(argc, argv, "Half of the ranks simulate, half learn from them.", twin,
                                      {.steps = 300, .batch_size = 64}, [&options](CLI::App& app) {
                                        app.add_option("--thread-level", options.level, "what MPI is asked for")
                                            ->check(CLI::IsMember({"single", "multiple"}))
                                            ->capture_default_str();
                                      });
  return options;
}

inline void init_mpi(const std::string& level) {
  int provided = MPI_THREAD_SINGLE;
  if (level == "multiple")
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
  else
    MPI_Init(nullptr, nullptr);
}

}  // namespace simulation
