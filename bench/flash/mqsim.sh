#!/usr/bin/env bash
# MQSim (CMU-SAFARI/MQSim) on random 4 KiB writes in steady state: million requests per second of processor time, write amplification.
# usage: bench/flash/mqsim.sh [BLOCKS PAGES SPARE]       MQSIM: the binary (MQSim on the PATH). Exit 3: it is not there.
#
# The drive is that of lab/bench/src/drive_speed.rs: 8 channels of 4 packages of 2 planes, TLC's times, buffer of 16 MiB, 32 requests
# at a time, the whole map in memory, greedy collection. MQSim fills it and brings it to its steady state itself, by a model. It is run
# twice, with few and with many requests, and the difference counts: reading the configuration and filling the drive do not.
# Written from its documentation and its source of 2022; not tried with a binary.
set -euo pipefail
blocks=${1:-16384} pages=${2:-256} spare=${3:-0.15}
few=100000 many=400000
mqsim=$(command -v "${MQSIM:-MQSim}") || {
  echo "skipped: needs MQSim (git clone the project CMU-SAFARI/MQSim of GitHub, make, MQSIM=…/MQSim)"
  exit 3
}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

cat > "$dir/drive.xml" << XML
<?xml version="1.0" encoding="us-ascii"?>
<Execution_Parameter_Set>
<Host_Parameter_Set>
<PCIe_Lane_Bandwidth>1.0</PCIe_Lane_Bandwidth><PCIe_Lane_Count>4</PCIe_Lane_Count>
<SATA_Processing_Delay>400000</SATA_Processing_Delay>
<Enable_ResponseTime_Logging>false</Enable_ResponseTime_Logging>
<ResponseTime_Logging_Period_Length>1000000</ResponseTime_Logging_Period_Length>
</Host_Parameter_Set>
<Device_Parameter_Set>
<Seed>1</Seed><Enabled_Preconditioning>true</Enabled_Preconditioning>
<Memory_Type>FLASH</Memory_Type><HostInterface_Type>NVME</HostInterface_Type>
<IO_Queue_Depth>1024</IO_Queue_Depth><Queue_Fetch_Size>32</Queue_Fetch_Size>
<Caching_Mechanism>SIMPLE</Caching_Mechanism><Data_Cache_Sharing_Mode>SHARED</Data_Cache_Sharing_Mode>
<Data_Cache_Capacity>16777216</Data_Cache_Capacity>
<Data_Cache_DRAM_Row_Size>8192</Data_Cache_DRAM_Row_Size><Data_Cache_DRAM_Data_Rate>800</Data_Cache_DRAM_Data_Rate>
<Data_Cache_DRAM_Data_Busrt_Size>4</Data_Cache_DRAM_Data_Busrt_Size>
<Data_Cache_DRAM_tRCD>13</Data_Cache_DRAM_tRCD><Data_Cache_DRAM_tCL>13</Data_Cache_DRAM_tCL><Data_Cache_DRAM_tRP>13</Data_Cache_DRAM_tRP>
<Address_Mapping>PAGE_LEVEL</Address_Mapping><Ideal_Mapping_Table>true</Ideal_Mapping_Table>
<CMT_Capacity>67108864</CMT_Capacity><CMT_Sharing_Mode>SHARED</CMT_Sharing_Mode>
<Plane_Allocation_Scheme>CWDP</Plane_Allocation_Scheme>
<Transaction_Scheduling_Policy>OUT_OF_ORDER</Transaction_Scheduling_Policy>
<Overprovisioning_Ratio>$spare</Overprovisioning_Ratio>
<GC_Exec_Threshold>0.02</GC_Exec_Threshold><GC_Block_Selection_Policy>GREEDY</GC_Block_Selection_Policy>
<Use_Copyback_for_GC>false</Use_Copyback_for_GC><Preemptible_GC_Enabled>false</Preemptible_GC_Enabled>
<GC_Hard_Threshold>0.005</GC_Hard_Threshold>
<Dynamic_Wearleveling_Enabled>true</Dynamic_Wearleveling_Enabled><Static_Wearleveling_Enabled>false</Static_Wearleveling_Enabled>
<Static_Wearleveling_Threshold>100</Static_Wearleveling_Threshold>
<Preferred_suspend_erase_time_for_read>700000</Preferred_suspend_erase_time_for_read>
<Preferred_suspend_erase_time_for_write>700000</Preferred_suspend_erase_time_for_write>
<Preferred_suspend_write_time_for_read>100000</Preferred_suspend_write_time_for_read>
<Flash_Channel_Count>8</Flash_Channel_Count><Flash_Channel_Width>1</Flash_Channel_Width>
<Channel_Transfer_Rate>1200</Channel_Transfer_Rate><Chip_No_Per_Channel>4</Chip_No_Per_Channel>
<Flash_Comm_Protocol>NVDDR2</Flash_Comm_Protocol>
<Flash_Parameter_Set>
<Flash_Technology>TLC</Flash_Technology><CMD_Suspension_Support>NONE</CMD_Suspension_Support>
<Page_Read_Latency_LSB>45000</Page_Read_Latency_LSB><Page_Read_Latency_CSB>45000</Page_Read_Latency_CSB>
<Page_Read_Latency_MSB>45000</Page_Read_Latency_MSB>
<Page_Program_Latency_LSB>100000</Page_Program_Latency_LSB><Page_Program_Latency_CSB>100000</Page_Program_Latency_CSB>
<Page_Program_Latency_MSB>100000</Page_Program_Latency_MSB>
<Block_Erase_Latency>3500000</Block_Erase_Latency><Block_PE_Cycles_Limit>100000</Block_PE_Cycles_Limit>
<Suspend_Erase_Time>700000</Suspend_Erase_Time><Suspend_Program_Time>100000</Suspend_Program_Time>
<Die_No_Per_Chip>1</Die_No_Per_Chip><Plane_No_Per_Die>2</Plane_No_Per_Die>
<Block_No_Per_Plane>$((blocks / 64))</Block_No_Per_Plane><Page_No_Per_Block>$pages</Page_No_Per_Block>
<Page_Capacity>4096</Page_Capacity><Page_Metadat_Capacity>448</Page_Metadat_Capacity>
</Flash_Parameter_Set>
</Device_Parameter_Set>
</Execution_Parameter_Set>
XML

load() {
  cat << XML
<?xml version="1.0" encoding="us-ascii"?>
<MQSim_IO_Scenarios><IO_Scenario><IO_Flow_Parameter_Set_Synthetic>
<Priority_Class>HIGH</Priority_Class><Device_Level_Data_Caching_Mode>WRITE_CACHE</Device_Level_Data_Caching_Mode>
<Channel_IDs>0,1,2,3,4,5,6,7</Channel_IDs><Chip_IDs>0,1,2,3</Chip_IDs><Die_IDs>0</Die_IDs><Plane_IDs>0,1</Plane_IDs>
<Initial_Occupancy_Percentage>100</Initial_Occupancy_Percentage><Working_Set_Percentage>100</Working_Set_Percentage>
<Synthetic_Generator_Type>QUEUE_DEPTH</Synthetic_Generator_Type><Read_Percentage>0</Read_Percentage>
<Address_Distribution>RANDOM_UNIFORM</Address_Distribution><Percentage_of_Hot_Region>0</Percentage_of_Hot_Region>
<Generated_Aligned_Addresses>true</Generated_Aligned_Addresses><Address_Alignment_Unit>8</Address_Alignment_Unit>
<Request_Size_Distribution>FIXED</Request_Size_Distribution><Average_Request_Size>8</Average_Request_Size>
<Variance_Request_Size>0</Variance_Request_Size><Seed>7</Seed>
<Average_No_of_Reqs_in_Queue>32</Average_No_of_Reqs_in_Queue><Bandwidth>262144</Bandwidth>
<Stop_Time>0</Stop_Time><Total_Requests_To_Generate>$1</Total_Requests_To_Generate>
</IO_Flow_Parameter_Set_Synthetic></IO_Scenario></MQSim_IO_Scenarios>
XML
}

# Processor seconds of a run of so many requests. It waits for a key at its end.
run() {
  local TIMEFORMAT=%U
  load "$1" > "$dir/load$1.xml"
  { time "$mqsim" -i "$dir/drive.xml" -w "$dir/load$1.xml" < /dev/null > "$dir/log" 2>&1; } 2>&1
}
# A number of its result: attribute or element, first of that name.
result() { grep -oE "$2(=\"|>)[0-9]+" "$dir/load$1_scenario_1.xml" | head -1 | grep -oE '[0-9]+$'; }

short=$(run $few) && long=$(run $many) || { echo "failed: $(tail -1 "$dir/log")"; exit 1; }
awk -v s="$short" -v l="$long" -v n0="$(result $few Request_Count)" -v n1="$(result $many Request_Count)" \
  -v p0="$(result $few Issued_Flash_Program_CMD)" -v p1="$(result $many Issued_Flash_Program_CMD)" \
  'BEGIN { if (l <= s || n1 <= n0) { print "failed: the run with more requests did not take longer"; exit 1 }
           printf "%.4f %.2f\n", (n1 - n0) / (l - s) / 1e6, (p1 - p0) / (n1 - n0) }'
