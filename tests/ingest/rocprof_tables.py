"""Small CSV files as rocprofv3 of several ages writes them."""

from pathlib import Path

KERNELS_2024 = """\
"Kind","Agent_Id","Queue_Id","Thread_Id","Dispatch_Id","Kernel_Id","Kernel_Name",\
"Correlation_Id","Start_Timestamp","End_Timestamp","Private_Segment_Size",\
"Group_Segment_Size","Workgroup_Size_X","Workgroup_Size_Y","Workgroup_Size_Z",\
"Grid_Size_X","Grid_Size_Y","Grid_Size_Z"
"KERNEL_DISPATCH",1,2,69,5,16,"void add<int, 4>(float*, int)",8,2300,2450,0,512,\
64,2,1,1024,6,1
"""
KERNELS_2025 = """\
"Kind","Agent_Id","Queue_Id","Stream_Id","Thread_Id","Dispatch_Id","Kernel_Id",\
"Kernel_Name","Correlation_Id","Start_Timestamp","End_Timestamp","LDS_Block_Size",\
"Scratch_Size","VGPR_Count","Accum_VGPR_Count","SGPR_Count","Workgroup_Size_X",\
"Workgroup_Size_Y","Workgroup_Size_Z","Grid_Size_X","Grid_Size_Y","Grid_Size_Z"
"KERNEL_DISPATCH","Agent 4","1","3","7","2","10","mul.kd","8","2000","2300","256",\
"0","12","4","16","64","1","1","100","1","1"
"KERNEL_DISPATCH","Agent 4","1","3","7","1","10","say ""x"" once","8","1500","1900",\
"256","0","12","4","16","64","1","1","128","1","1"
"""
API = """\
"Domain","Function","Process_Id","Thread_Id","Correlation_Id","Start_Timestamp",\
"End_Timestamp"
"""
CALLS = (
    API
    + """\
"HIP_RUNTIME_API_EXT","hipGraphLaunch",70,71,8,1000,1200
"HIP_COMPILER_API","__hipRegisterFatBinary",70,71,1,900,950
"""
)
HSA_CALLS = (
    API
    + """\
"HSA_CORE_API","hsa_signal_create",70,71,4,1000,1010
"HSA_CORE_API","hsa_queue_store",70,71,8,1020,1040
"""
)
MARKERS = (
    API
    + """\
"MARKER_CORE_API","step 1",70,71,2,800,2600
"MARKER_CORE_API","a mark",70,71,3,850,850
"MARKER_CORE_RANGE_API","roctxGetThreadId",70,71,4,850,860
"MARKER_CONTROL_API","roctxProfilerPause",70,71,4,850,860
"""
)
COPIES = """\
"Kind","Direction","Stream_Id","Source_Agent_Id","Destination_Agent_Id",\
"Correlation_Id","Start_Timestamp","End_Timestamp"
"MEMORY_COPY","MEMORY_COPY_HOST_TO_DEVICE",0,"Agent 0","Agent 4",9,2400,2500
"MEMORY_COPY","MEMORY_COPY_DEVICE_TO_HOST",0,"Agent 4","Agent 0",10,2600,2700
"""
AGENTS = """\
"Node_Id","Logical_Node_Id","Agent_Type","Cu_Count","Name","Product_Name"
0,0,"CPU",128,"AMD EPYC 9575F","AMD EPYC 9575F"
6,4,"GPU",256,"gfx950","AMD Instinct MI350X"
7,5,"GPU",256,"gfx950","AMD Instinct MI350X"
"""

STATS = '"Name","Calls","TotalDurationNs","AverageNs"\n"mul",1,300,300\n'
FILES = {
    "kernel_trace": KERNELS_2025,
    "hip_api_trace": CALLS,
    "hsa_api_trace": HSA_CALLS,
    "marker_api_trace": MARKERS,
    "memory_copy_trace": COPIES,
    "agent_info": AGENTS,
    "kernel_stats": STATS,
}
"""All files of one process, by their names after the prefix."""


def write_all(folder: Path) -> Path:
    """`folder`, with all of `FILES` of process 70 in it."""
    for part, text in FILES.items():
        (folder / f"70_{part}.csv").write_text(text)
    return folder
