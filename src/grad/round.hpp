#pragma once

#include "grad/sync_unit.hpp"

#include <accel/collectives.hpp>
#include <accel/source_location.hpp>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace accel::detail {

/// One unit of a round, and how its gradients become one.
struct RoundUnit {
  std::shared_ptr<SyncUnit> unit;
  ReduceOp op = ReduceOp::kAvg;
  double factor = 1.0;        ///< on the combined gradient
  double local_factor = 1.0;  ///< on this rank's gradient, before it is sent
  bool closes = true;         ///< the window ends with this round
};

/// Reduces the gradients of some units once. One launcher sends all buckets of all units in one fixed order, the same
/// on all ranks, whatever the order in which backward reaches them; so ranks may differ in what they reach.
///
///   Round round(...);      arms the hooks
///   loss.backward();       hooks send buckets that are complete and next in order
///   round.collect();       takes in the gradients that backward did not reach
///   round.finish();        sends the rest, waits, agrees on which parameters any rank reached
///
/// A rank whose backward threw calls abandon instead of finish: it sends the rest with zeros, and every rank learns of
/// it.
class Round {
 public:
  Round(std::vector<RoundUnit> units, const Group& group, SourceLocation where);
  ~Round();
  Round(const Round&) = delete;
  Round& operator=(const Round&) = delete;

  /// Takes in what backward did not reach. @throws UsageError  a sparse gradient; then call abandon.
  void collect();

  /// After collect. @return the text of the ranks that failed, if any: then all gradients of the units are dropped.
  /// @throws CommError  a peer is lost.
  [[nodiscard]] std::optional<std::string> finish();
  /// The same for a rank whose backward threw `reason`.
  std::optional<std::string> abandon(const std::string& reason);

 private:
  friend class SyncUnit;
  struct Step {
    RoundUnit* unit;
    std::size_t bucket;
  };

  void reached(SyncUnit& unit, std::size_t index);
  void reached_again(SyncUnit& unit, std::size_t index);
  void send_ready();
  void send(const Step& step, bool synchronous);
  void fill_unreached();
  std::optional<std::string> complete(const std::string& failure);
  std::vector<std::uint8_t> agree(bool failed);
  void hand_out(const std::vector<std::uint8_t>& agreed);
  void reduce_late(const std::vector<std::uint8_t>& agreed);
  void disarm() noexcept;

  std::vector<RoundUnit> units_;
  const Group& group_;
  SourceLocation where_;
  std::vector<Step> steps_;
  std::vector<ReduceBuffer*> under_way_;
  std::size_t next_ = 0;
  bool closed_ = false;
  bool overlap_ = true;
  std::mutex mutex_;  // hooks of models on several devices run in several threads
};

}  // namespace accel::detail
