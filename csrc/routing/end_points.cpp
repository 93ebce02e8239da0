#include "routing/end_points.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace rostam::routing {

namespace {

constexpr double kShareSlack = 1e-9;  // of a transfer: sums of n-ths
constexpr double kBytesSlack = 1e-9;  // relative; flows in flight are counted by their rates

}  // namespace

EndPoints::EndPoints(const RouteTable& routes) {
  const int32_t num_accelerators = routes.num_accelerators();
  for (const PlaneClass& planes : routes.planes()) {
    const std::vector<fabric::Link>& links = planes.policy->fabric().links();
    const IdLists& lists = planes.policy->links().members;
    for (size_t list = 0; list < lists.size(); ++list) {
      const IdSpan members = lists[list];
      first_.push_back(static_cast<uint32_t>(ends_.size()));
      num_planes_.push_back(routes.planes().size() > 1 ? planes.num_planes : 1);
      const double share = 1.0 / static_cast<double>(members.size());
      for (const int32_t member : members) {
        const fabric::Link& link = links[static_cast<size_t>(member)];
        if (link.src < num_accelerators) ends_.push_back({link.src, share});
        if (link.dst < num_accelerators) ends_.push_back({link.dst, -share});
      }
    }
  }
  first_.push_back(static_cast<uint32_t>(ends_.size()));
  net_.assign(static_cast<size_t>(num_accelerators), 0.0);
}

void EndPoints::add_link(int32_t src, int32_t dst) {
  const auto num_accelerators = static_cast<int32_t>(net_.size());
  if (src < 0 || src >= num_accelerators || dst < 0 || dst >= num_accelerators || src == dst) {
    ROSTAM_THROW(ConfigError, "a link from accelerator " << src << " to " << dst
                                                         << " is added; ends must differ and be 0 to "
                                                         << num_accelerators - 1);
  }
  ends_.push_back({src, 1.0});
  ends_.push_back({dst, -1.0});
  first_.push_back(static_cast<uint32_t>(ends_.size()));
  num_planes_.push_back(1);
}

void EndPoints::check_route(const Route& route, int32_t src, int32_t dst) {
  const LinkShare* links = route.links.data();
  if (route.lanes.empty()) check_links(links, links + route.links.size(), src, dst);
  for (const Lane& lane : route.lanes) check_links(links + lane.first_link, links + lane.end_link, src, dst);
}

void EndPoints::check_links(const LinkShare* first, const LinkShare* last, int32_t src, int32_t dst) {
  for (const LinkShare* hop = first; hop != last; ++hop) {
    for (uint32_t k = first_[hop->link]; k < first_[hop->link + 1]; ++k) {
      net_[ends_[k].accelerator] += hop->share * ends_[k].share;
    }
  }
  net_[src] -= 1;
  net_[dst] += 1;
  const auto take = [this](int32_t accelerator) { return std::exchange(net_[accelerator], 0.0); };
  double worst = std::max(std::abs(take(src)), std::abs(take(dst)));
  for (const LinkShare* hop = first; hop != last; ++hop) {
    for (uint32_t k = first_[hop->link]; k < first_[hop->link + 1]; ++k) {
      worst = std::max(worst, std::abs(take(ends_[k].accelerator)));
    }
  }
  ROSTAM_CHECK(worst <= kShareSlack, "a route from accelerator " << src << " to " << dst << " leaves " << worst
                                                                 << " of its transfer at other accelerators");
}

void EndPoints::check_region(const Route& route) {
  const auto visit = [&](const auto& take) {
    for (const LinkShare& hop : route.links) {
      for (uint32_t k = first_[hop.link]; k < first_[hop.link + 1]; ++k) take(ends_[k], hop.share);
    }
  };
  visit([this](const End& end, double share) { net_[end.accelerator] += share * end.share; });
  for (const RouteEnd& end : route.ends) net_[end.accelerator] -= end.sent - end.received;
  double worst = 0;
  visit([this, &worst](const End& end, double) {
    worst = std::max(worst, std::abs(std::exchange(net_[end.accelerator], 0.0)));
  });
  for (const RouteEnd& end : route.ends) worst = std::max(worst, std::abs(std::exchange(net_[end.accelerator], 0.0)));
  ROSTAM_CHECK(worst <= kShareSlack, "a tree of " << route.ends.size() << " accelerators for accelerator " << route.src
                                                  << " leaves " << worst << " of its bytes at some of them");
}

void EndPoints::check_bytes(const std::vector<double>& link_bytes, const std::vector<double>& sent,
                            const std::vector<double>& received, const std::vector<Stray>& strays) const {
  std::vector<double> net(sent.size()), total(sent.size());
  for (size_t a = 0; a < sent.size(); ++a) {
    net[a] = received[a] - sent[a];
    total[a] = received[a] + sent[a];
  }
  for (size_t link = 0; link < link_bytes.size(); ++link) {
    const double bytes = link_bytes[link] * num_planes_[link];
    for (uint32_t k = first_[link]; k < first_[link + 1]; ++k) {
      net[ends_[k].accelerator] += bytes * ends_[k].share;
      total[ends_[k].accelerator] += bytes * std::abs(ends_[k].share);
    }
  }
  for (const Stray& one : strays) {
    const double bytes = one.bytes * num_planes_[one.link];
    net[one.accelerator] -= bytes;
    for (uint32_t k = first_[one.link]; k < first_[one.link + 1]; ++k) {
      if (ends_[k].share < 0) net[ends_[k].accelerator] += bytes;
    }
  }
  for (size_t a = 0; a < net.size(); ++a) {
    ROSTAM_CHECK(std::abs(net[a]) <= kBytesSlack * total[a] + 1e-3,
                 "accelerator " << a << " sent " << sent[a] << " bytes and received " << received[a]
                                << ", but its links carried " << net[a] << " more out than in");
  }
}

double EndPoints::forwarded_bytes(const std::vector<double>& link_bytes, const std::vector<double>& sent) const {
  double out = 0, own = 0;
  for (size_t link = 0; link < link_bytes.size(); ++link) {
    for (uint32_t k = first_[link]; k < first_[link + 1]; ++k) {
      if (ends_[k].share > 0) out += link_bytes[link] * num_planes_[link] * ends_[k].share;
    }
  }
  for (const double bytes : sent) own += bytes;
  return out - own <= kBytesSlack * out ? 0 : out - own;
}

}  // namespace rostam::routing
